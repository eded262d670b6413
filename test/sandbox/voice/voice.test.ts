import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import fc from 'fast-check';
import { type Test, test } from 'tap';
import { FLITE_SAMPLE_RATE, Flite, loadEngine, recipeOf, VOICES } from '../../../src/sandbox/voice/flite.ts';
import { segmentsOf } from '../../../src/sandbox/voice/segments.ts';
import { BusyError, Voice } from '../../../src/sandbox/voice/voice.ts';
import type { Utterance } from '../../../src/sandbox/voice/voice-worker.ts';
import { readMp3 } from './mp3-frames.ts';

const never = () => new AbortController().signal;

function startVoice(t: Test, threads: number, maxWaitMs?: number): Voice {
  const voice = new Voice({ threads, ...(maxWaitMs !== undefined && { maxWaitMs }) });
  t.teardown(() => voice.close());
  return voice;
}

/** The whole MP3 of a text, by the fastest voice unless told otherwise. */
async function speak(
  voice: Voice,
  wanted: Partial<Utterance> & { readonly text: string },
  signal = never(),
): Promise<Buffer> {
  return buffer(await voice.speak({ model: 'tts-1', voice: 'onyx', speed: 1, ...wanted }, signal));
}

const LINE = 'The birch canoe slid on the smooth planks. ';
const TWO_SEGMENTS = LINE.repeat(6);
const LONG = { text: LINE.repeat(25), model: 'tts-1', voice: 'alloy', speed: 1 };

test('the audio is one MP3 stream of constant bit rate, higher with tts-1-hd', async (t) => {
  const voice = startVoice(t, 1);
  const plain = readMp3(await speak(voice, { text: TWO_SEGMENTS }));
  const high = readMp3(await speak(voice, { text: TWO_SEGMENTS, model: 'tts-1-hd' }));
  t.strictSame([plain.kilobitsPerSecond, high.kilobitsPerSecond], [48, 96]);
  t.equal(high.seconds, plain.seconds);
});

test('R43: text with nothing to speak is a short silence', async (t) => {
  const voice = startVoice(t, 1);
  for (const text of ['...', '!?', '()', '\u200f', '\ud800']) {
    const { seconds } = readMp3(await speak(voice, { text }));
    t.ok(seconds > 0 && seconds < 1, `${text}: ${seconds} s`);
  }
});

test('an aborted utterance frees its thread for the next one', async (t) => {
  const voice = startVoice(t, 1);
  const reference = await speak(voice, { text: 'Hello world.' });
  const whileSpeaking = new AbortController();
  const audio = await voice.speak(LONG, whileSpeaking.signal);
  whileSpeaking.abort();
  await t.rejects(audio.toArray());
  t.strictSame(await speak(voice, { text: 'Hello world.' }), reference);
  const beforeTheFirstPiece = new AbortController();
  const starting = voice.speak(LONG, beforeTheFirstPiece.signal);
  setImmediate(() => beforeTheFirstPiece.abort());
  await t.rejects(starting);
  t.strictSame(await speak(voice, { text: 'Hello world.' }), reference);
});

test('an utterance is refused if it waits too long or the queue is full', async (t) => {
  const voice = startVoice(t, 1, 50);
  const held = await voice.speak(LONG, never());
  await Promise.all(Array.from({ length: 17 }, () => assert.rejects(speak(voice, { text: 'Hello' }), BusyError)));
  held.destroy();
  t.ok((await speak(voice, { text: 'Hello' })).length > 1000);
});

const SENTENCE = 'The quick brown fox jumps over the lazy dog, and then it runs away.';

test("the voices are the catalog's nine", async (t) => {
  t.strictSame(VOICES, ['alloy', 'ash', 'coral', 'echo', 'fable', 'nova', 'onyx', 'sage', 'shimmer']);
  t.equal(
    new Set(VOICES.map((voice) => JSON.stringify(recipeOf(voice)))).size,
    VOICES.length,
    'no two have the same recipe',
  );
});

// MP3 frames last 36 ms, of half a second.
test('every voice lasts 1/speed of its duration at speed 1', async (t) => {
  const voice = startVoice(t, 2);
  const seconds = async (name: string, speed: number) =>
    readMp3(await speak(voice, { text: 'Hello world', voice: name, speed })).seconds;
  for (const name of VOICES) {
    const [plain, ...others] = await Promise.all([1, 0.5, 2].map((speed) => seconds(name, speed)));
    for (const [i, speed] of [0.5, 2].entries()) {
      const ratio = ((others[i] as number) * speed) / (plain as number);
      t.ok(Math.abs(ratio - 1) < 0.05, `${name} at speed ${speed}: off by ${ratio}`);
    }
  }
});

const segments = (text: string) => [...segmentsOf(text)];

test('segments of any text are short printable ASCII with short words and numbers', async () => {
  const anyText = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 600 }),
    fc.string({ unit: 'grapheme', maxLength: 600 }),
  );
  fc.assert(
    fc.property(anyText, (text) => {
      for (const segment of segments(text)) {
        assert.match(segment, /^[!-~]+( [!-~]+)*$/);
        assert.ok(segment.length <= 200, segment);
        assert.doesNotMatch(segment, /[!-~]{25}/);
        assert.doesNotMatch(segment, /\d{7}/);
      }
    }),
  );
});

test('no word of plain text is lost, repeated or moved', async () => {
  const word = fc.stringMatching(/^[a-z]{1,24}$/);
  fc.assert(
    fc.property(fc.array(word, { maxLength: 200 }), (words) => {
      assert.deepEqual(segments(words.join(' ')).join(' '), words.join(' '));
    }),
  );
});

test('a long text is split at sentences, else at clauses, else between words', async (t) => {
  const sentence = `${'word '.repeat(20)}end.`;
  t.strictSame(segments(`${sentence} ${sentence}`), [sentence, sentence]);
  const clause = `${'word '.repeat(20)}end,`;
  t.strictSame(segments(`${clause} ${clause}`), [clause, clause]);
  const told = segments('word '.repeat(60)).map((segment) => segment.split(' ').length);
  t.strictSame(told, [40, 20]);
});

test('digits, symbols and words without vowels make shorter segments', async (t) => {
  const longest = (text: string) => Math.max(...segments(text).map((segment) => segment.length));
  for (const text of ['7 ', '777777 ', '# ', 'w']) t.ok(longest(text.repeat(1000)) <= 60, text);
});

const SPOKEN: readonly (readonly [title: string, text: string, spoken: string])[] = [
  ['a text that fits is a single segment', 'Hello there. How are you?', 'Hello there. How are you?'],
  ['a long number is read digit by digit', 'call 5551234567 in 2024', 'call 5 5 5 1 2 3 4 5 6 7 in 2024'],
  ['letters lose their diacritics', 'Übergröße', 'Ubergrosse'],
  ['letters lose combining diacritics', 'e\u0301', 'e'],
  ['an emoji is spoken by its name', 'well done 😂', 'well done joy'],
  [
    'a line end ends a sentence unless the line has punctuation',
    'Title\n\nOne, \r\ntwo.\nthree',
    'Title. One, two. three',
  ],
];

test('a text is prepared for English speech', async (t) => {
  for (const [title, text, spoken] of SPOKEN) t.strictSame(segments(text), [spoken], title);
});

test('a text with nothing to speak has no segments', async (t) => {
  for (const text of ['\n\n', '\u202e\u200f', '\u0301', '\ud800', '\u0000']) t.strictSame(segments(text), []);
});

const engine = await loadEngine();
const flite = new Flite(engine);

test('a run leaves no state: a text always sounds the same', async (t) => {
  const recipe = recipeOf('alloy');
  const first = new Flite(engine).speak(SENTENCE, recipe, 1);
  flite.speak('7 '.repeat(60), recipeOf('onyx'), 2);
  flite.speak('', recipeOf('ash'), 1);
  t.strictSame(flite.speak(SENTENCE, recipe, 1), first);
  t.strictSame(flite.speak(SENTENCE, recipe, 1), first);
});

test('a run that grows the memory does not affect the next', async (t) => {
  const recipe = recipeOf('onyx');
  const reference = flite.speak(SENTENCE, recipe, 1);
  const long = flite.speak('seven hundred and seventy seven thousand '.repeat(40), recipe, 2);
  t.ok(long.byteLength > 4 * 1024 * 1024, `only ${long.byteLength} bytes`);
  t.strictSame(flite.speak(SENTENCE, recipe, 1), reference);
});

test('text that looks like options is spoken, not obeyed', async (t) => {
  for (const text of ['-voice kal', '--help', '-lv', '-o /tmp/other.wav', '-ssml <speak>hello</speak>'])
    t.ok(flite.speak(text, recipeOf('alloy'), 1).length > 0.4 * FLITE_SAMPLE_RATE, text);
});

test('an unknown voice always gets the recipe of the same known one', async (t) => {
  const recipes = VOICES.map(recipeOf);
  for (const voice of ['verse', '', 'constructor', '__proto__', '声']) {
    t.ok(recipes.includes(recipeOf(voice)), voice);
    t.equal(recipeOf(voice), recipeOf(voice));
  }
});
