import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { setMaxListeners } from 'node:events';
import { mock } from 'node:test';
import { promisify } from 'node:util';
import { test } from 'tap';
import { embeddedVoice } from '../../../src/speech/embedded/index.ts';
import { SpeechThread } from '../../../src/speech/embedded/thread.ts';
import { SpeechError } from '../../../src/speech/provider.ts';
import { readMp3 } from './mp3-frames.ts';
import { readAll, speak, startVoice, utterance } from './speak.ts';

const LONG_TEXT = 'The birch canoe slid on the smooth planks. '.repeat(25);

const unavailable = (error: unknown) => {
  assert.ok(error instanceof SpeechError);
  assert.deepEqual([error.code, error.transient], ['TTS_UNAVAILABLE', true]);
  assert.doesNotMatch(error.message, /canoe/);
  return true;
};

test('the audio is one MP3 stream of constant bit rate, higher with tts-1-hd', async (t) => {
  const voice = startVoice(t, 1);
  const speech = await voice.synthesize(utterance({ text: LONG_TEXT }), new AbortController().signal);
  assert.equal(speech.mimeType, 'audio/mpeg');
  const plain = readMp3(await readAll(speech));
  const high = readMp3(await speak(voice, { text: LONG_TEXT, model: 'tts-1-hd' }));
  assert.deepEqual([plain.kilobitsPerSecond, high.kilobitsPerSecond], [48, 96]);
  assert.equal(high.seconds, plain.seconds);
});

test('the same utterance gives the same bytes, whichever thread speaks it', async (t) => {
  const voice = startVoice(t, 2);
  const [a, b, c] = await Promise.all(Array.from({ length: 3 }, () => speak(voice, { text: 'Hello world.' })));
  assert.deepEqual(a, b);
  assert.deepEqual(a, c);
});

test('text with nothing to speak is a short silence (R43)', async (t) => {
  const voice = startVoice(t, 1);
  for (const name of ['alloy', 'onyx']) {
    for (const text of ['...', '!?', '()']) {
      const { seconds } = readMp3(await speak(voice, { text, voice: name }));
      assert.ok(seconds > 0 && seconds < 1, `${text}: ${seconds} s`);
    }
    for (const text of ['\u200f', '\ud800']) {
      const { seconds } = readMp3(await speak(voice, { text, voice: name }));
      assert.ok(seconds > 0.4 && seconds < 0.6, `nothing left: ${seconds} s`);
    }
  }
});

test('audio comes piece by piece, and a slow reader holds the thread back', async (t) => {
  const voice = startVoice(t, 1);
  t.teardown(() => mock.reset());
  const questions = mock.method(SpeechThread.prototype, 'ask').mock;
  const { audio } = await voice.synthesize(utterance({ text: LONG_TEXT }), new AbortController().signal);
  assert.equal(questions.callCount(), 1);
  let read = 0;
  for await (const piece of audio) {
    assert.ok(piece.length > 0);
    assert.ok(questions.callCount() <= ++read + 1, `${questions.callCount()} pieces asked for, ${read} read`);
  }
  assert.ok(read >= 5, `${read} pieces`);
});

test('when the signal fires, the thread is stopped, reading throws, and another thread takes over', async (t) => {
  const voice = startVoice(t, 1);
  const reference = await speak(voice, { text: 'Hello world.' });
  t.teardown(() => mock.reset());
  const stops = mock.method(SpeechThread.prototype, 'stop').mock;

  const whileSpeaking = new AbortController();
  const { audio } = await voice.synthesize(utterance({ text: LONG_TEXT, voice: 'alloy' }), whileSpeaking.signal);
  const reader = audio[Symbol.asyncIterator]();
  assert.equal((await reader.next()).done, false);
  whileSpeaking.abort();
  await assert.rejects(reader.next(), unavailable);
  await assert.rejects(reader.next(), unavailable);
  assert.equal(stops.callCount(), 1);
  assert.deepEqual(await speak(voice, { text: 'Hello world.' }), reference);

  const beforeTheFirstPiece = new AbortController();
  const starting = voice.synthesize(utterance({ text: LONG_TEXT, voice: 'alloy' }), beforeTheFirstPiece.signal);
  setImmediate(() => beforeTheFirstPiece.abort());
  await assert.rejects(starting, unavailable);
  assert.deepEqual(await speak(voice, { text: 'Hello world.' }), reference);

  await assert.rejects(voice.synthesize(utterance({ text: 'Hello' }), AbortSignal.abort()), unavailable);
});

test('when the signal fires between two pieces, reading takes nothing from the next utterance', async (t) => {
  const voice = startVoice(t, 1);
  const reference = await speak(voice, { text: LONG_TEXT });
  const controller = new AbortController();
  const given = await voice.synthesize(utterance({ text: LONG_TEXT, voice: 'alloy' }), controller.signal);
  controller.abort();
  const next = await voice.synthesize(utterance({ text: LONG_TEXT }), new AbortController().signal);
  await assert.rejects(readAll(given), unavailable);
  assert.deepEqual(await readAll(next), reference);
});

test('a signal that fires after the end changes nothing', async (t) => {
  const voice = startVoice(t, 1);
  t.teardown(() => mock.reset());
  const stops = mock.method(SpeechThread.prototype, 'stop').mock;
  const controller = new AbortController();
  await readAll(await voice.synthesize(utterance({ text: 'Hello' }), controller.signal));
  controller.abort();
  await speak(voice, { text: 'Hello' });
  assert.equal(stops.callCount(), 0);
});

test('a reader that leaves early frees the thread', async (t) => {
  const voice = startVoice(t, 1);
  const { audio } = await voice.synthesize(utterance({ text: LONG_TEXT }), new AbortController().signal);
  for await (const _piece of audio) break;
  await speak(voice, { text: 'Hello' });
});

test('a piece that takes too long ends its thread, and another takes over', async (t) => {
  const voice = startVoice(t, 1);
  const reference = await speak(voice, { text: 'Hello' });
  t.teardown(() => mock.reset());
  mock.timers.enable({ apis: ['setTimeout'] });
  const slow = voice.synthesize(utterance({ text: LONG_TEXT, voice: 'alloy' }), new AbortController().signal);
  setImmediate(() => mock.timers.tick(60_000));
  await assert.rejects(slow, unavailable);
  mock.timers.reset();
  assert.deepEqual(await speak(voice, { text: 'Hello' }), reference);
});

test('who finds sixteen waiting for the one thread is refused at once (R9)', async (t) => {
  const voice = startVoice(t, 1);
  await speak(voice, { text: 'Hello' });
  const { audio } = await voice.synthesize(utterance({ text: LONG_TEXT }), new AbortController().signal);
  const waiting = Array.from({ length: 16 }, () => speak(voice, { text: 'Hello' }));
  await assert.rejects(speak(voice, { text: 'Hello' }), unavailable);

  await readAll({ mimeType: 'audio/mpeg', audio });
  for (const mp3 of await Promise.all(waiting)) readMp3(mp3);
});

test('who gives up waiting leaves the queue', async (t) => {
  const voice = startVoice(t, 1);
  await speak(voice, { text: 'Hello' });
  const { audio } = await voice.synthesize(utterance({ text: LONG_TEXT }), new AbortController().signal);
  const controller = new AbortController();
  setMaxListeners(16, controller.signal);
  const given = Array.from({ length: 16 }, () => voice.synthesize(utterance({ text: 'Hello' }), controller.signal));
  const refusals = Promise.all(given.map((each) => assert.rejects(each, unavailable)));
  setImmediate(() => controller.abort());
  await refusals;
  const next = speak(voice, { text: 'Hello' });
  await readAll({ mimeType: 'audio/mpeg', audio });
  readMp3(await next);
});

test('close ends what is running and what waits, and refuses what comes', async () => {
  const voice = embeddedVoice({ workers: 1 });
  const { audio } = await voice.synthesize(utterance({ text: LONG_TEXT }), new AbortController().signal);
  const waiting = assert.rejects(speak(voice, { text: 'Hello' }), unavailable);
  const running = assert.rejects(readAll({ mimeType: 'audio/mpeg', audio }), unavailable);
  await new Promise(setImmediate);
  await voice.close();
  await Promise.all([waiting, running]);
  await assert.rejects(speak(voice, { text: 'Hello' }), unavailable);
  await voice.close();
});

test('a process that closes its voice can end', async () => {
  const index = import.meta.resolve('../../../src/speech/embedded/index.ts');
  const script = `import { embeddedVoice } from ${JSON.stringify(index)};
    const voice = embeddedVoice();
    const speech = await voice.synthesize({ text: 'Hello', model: 'tts-1', voice: 'onyx', speed: 1 }, AbortSignal.timeout(60_000));
    let bytes = 0;
    for await (const piece of speech.audio) bytes += piece.length;
    await voice.close();
    console.log(bytes);`;
  const arguments_ = ['--import', 'tsx', '--input-type=module', '--eval', script];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, arguments_, { timeout: 60_000 });
  assert.ok(Number(stdout) > 1000, stdout);
  assert.equal(stderr, '');
});
