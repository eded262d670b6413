import assert from 'node:assert/strict';
import { test } from 'tap';
import { longestSeconds, maxAudioSeconds } from '../../../src/speech/embedded/duration.ts';
import { SpeechError } from '../../../src/speech/provider.ts';
import { HOSTILE_TEXTS, LONG_WINDED_TEXTS } from './hostile-texts.ts';
import { readMp3 } from './mp3-frames.ts';
import { speak, startVoice, utterance } from './speak.ts';

/** One character that stands for four words. */
const ARROWS = '\u21a9'.repeat(4096);
const TEXTS = { ...HOSTILE_TEXTS, ...LONG_WINDED_TEXTS };

test('no text is spoken for longer than was expected', async (t) => {
  const voice = startVoice(t, 2);
  for (const [name, text] of Object.entries({
    ...TEXTS,
    arrows: ARROWS,
    abbreviations: 'CA Feb. etc. ',
    ands: '&&&&&&&&',
  })) {
    const wanted = { text: text.slice(0, 24), voice: 'ash', speed: 2 };
    const { seconds } = readMp3(await speak(voice, wanted));
    assert.ok(seconds <= longestSeconds(utterance(wanted)) + 1, `${name}: ${seconds}`);
  }
});

test('every text of 4096 characters that means one word each is spoken, at any speed of tts-1', async (t) => {
  const { refuse } = startVoice(t, 1);
  for (const [name, text] of Object.entries(TEXTS)) {
    assert.equal(refuse?.(utterance({ text, speed: 0.5 })), undefined, name);
    assert.equal(refuse?.(utterance({ text, speed: 1, model: 'tts-1-hd' })), undefined, name);
  }
});

test('what would not be spoken to its end is refused, with the way out', async (t) => {
  const { refuse } = startVoice(t, 1);
  const refused = refuse?.(utterance({ text: ARROWS }));
  assert.ok(refused instanceof SpeechError);
  assert.deepEqual([refused.code, refused.transient], ['TEXT_TOO_LONG', false]);
  assert.match(refused.message, /minutes to speak\. Split it/);
});

test('the longest audio is as long as is accepted of any provider', async () => {
  for (const [model, bytesPerSecond] of [
    ['tts-1', 6_000],
    ['tts-1-hd', 12_000],
  ] as const) {
    const bytes = maxAudioSeconds({ model }) * bytesPerSecond;
    assert.ok(bytes < 64 * 1024 * 1024 && bytes > 63 * 1024 * 1024, `${bytes}`);
  }
});
