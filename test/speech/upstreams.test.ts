import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'tap';
import { collectSpeech } from '../../src/speech/open-provider.ts';
import { MAX_AUDIO_BYTES, SpeechError } from '../../src/speech/provider.ts';
import { description, MONO_44100, mpegFrames, silentMp3, silentWav } from '../support/silent-audio.ts';
import type { Mode } from '../support/stub-upstream.ts';
import * as stub from '../support/stub-upstream.ts';
import { toneMp3, toneWave } from '../support/tone.ts';
import { until } from '../support/until.ts';
import { FAULTS_BEFORE_AUDIO } from '../support/upstream-faults.ts';
import { BROKEN_OFF, fails, NEVER, read, start, UNAVAILABLE, UPSTREAM_ERROR } from './compatible-upstream.ts';
import { type Failover, startFailover } from './failover.ts';

const UTTERANCE = { text: 'a canary sings', model: 'name', voice: 'voice', speed: 1, modelId: 'acme/model' };

const setMode = ({ upstreams }: Failover, index: number, mode: stub.Mode) => {
  (upstreams[index] as stub.StubUpstream).mode = mode;
};

test('the first upstream serves while it works, with its own model, voice and key', async (t) => {
  const failover = await startFailover(t, {});
  const speech = await failover.speak();
  t.strictSame(speech.upstream, { name: 'first', costPicoUsd: 100n });
  t.strictSame(await read(speech), silentMp3(1000));
  const [request] = failover.upstreams[0]?.requests ?? [];
  t.strictSame([request?.body?.model, request?.body?.voice], ['name', 'voice']);
  t.equal(request?.headers.authorization, 'Bearer key of first');
  t.strictSame(failover.asked(), [1, 0]);
});

for (const [name, mode] of Object.entries(FAULTS_BEFORE_AUDIO)) {
  test(`${name} instead of audio fails over to the next upstream`, async (t) => {
    const failover = await startFailover(t, { timeoutMs: 3000 });
    setMode(failover, 0, mode);
    const speech = await failover.speak();
    t.strictSame(speech.upstream, { name: 'second', costPicoUsd: 1n });
    t.strictSame(await read(speech), silentMp3(1000));
    const [request] = failover.upstreams[1]?.requests ?? [];
    t.strictSame([request?.body?.model, request?.body?.voice], ['model of second', 'voice of second']);
    t.equal(request?.headers.authorization, 'Bearer key of second');
    t.strictSame(failover.asked(), [1, 1]);
  });
}

test('a refused connection fails over and marks the upstream unavailable', async (t) => {
  const failover = await startFailover(t, {});
  await failover.upstreams[0]?.close();
  t.equal((await failover.speak()).upstream?.name, 'second');
  t.equal(await failover.metric('speechgate_upstream_available{upstream="first"}'), 0);
});

const TWO_RATES = stub.body(Buffer.concat([silentMp3(20_000), mpegFrames(MONO_44100)]));

for (const [name, mode, error] of [
  ['a reset within the audio', stub.resetInBody(), BROKEN_OFF],
  ['audio shorter than announced', stub.contentLengthTooLarge(), BROKEN_OFF],
  ['audio cut before its last chunk', stub.cutChunked(), BROKEN_OFF],
  ['another sampling rate within the audio', TWO_RATES, UPSTREAM_ERROR],
] as const) {
  test(`${name}: collected speech fails over, streams do not`, async (t) => {
    const failover = await startFailover(t, {});
    setMode(failover, 0, mode);
    const collected = await collectSpeech(failover.provider, UTTERANCE, NEVER);
    t.strictSame(collected.audio, silentMp3(1000));
    t.equal(collected.upstream?.name, 'second');
    await fails(failover.speak().then(read), error);
    t.strictSame(failover.asked(), [2, 1]);
  });
}

test('a caller that needs MP3 fails over from an upstream that returns WAV', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.hangInBody(stub.silentWav(500), { contentType: 'audio/wav' }));
  const { mimeType } = await collectSpeech(failover.provider, UTTERANCE, NEVER, 'audio/mpeg');
  t.equal(mimeType, 'audio/mpeg');
  t.equal(await failover.upstreams[0]?.requests[0]?.closed, 'aborted', 'what is of no use is not read on');
  setMode(failover, 1, stub.wav());
  await fails(collectSpeech(failover.provider, UTTERANCE, NEVER, 'audio/mpeg'), UPSTREAM_ERROR);
});

test('what all upstreams refuse is the fault of the text, and no upstream is left alone for it', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 1, stub.openAiError(422));
  for (const status of [400, 413, 422]) {
    setMode(failover, 0, stub.openAiError(status));
    for (let turn = 0; turn < BROKEN; turn++) await fails(failover.speak(), UPSTREAM_ERROR);
  }
  t.strictSame(failover.asked(), [9, 9]);
  setMode(failover, 0, stub.mp3());
  t.equal(await hear(failover), 'first');
});

test('when all upstreams fail, the first transient error is returned, else the last', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.html());
  setMode(failover, 1, stub.tooManyRequests('7'));
  await fails(failover.speak(), { ...UNAVAILABLE, retryAfterSeconds: 7 });
  setMode(failover, 0, stub.openAiError(500));
  await fails(failover.speak(), { code: 'TTS_UPSTREAM_ERROR', transient: true });
  setMode(failover, 1, stub.openAiError(422));
  await fails(failover.speak(), { code: 'TTS_UPSTREAM_ERROR', transient: true });
});

test('a text without words that gets no audio says nothing about the upstream', async (t) => {
  const failover = await startFailover(t, { count: 1 });
  for (const text of ['…', '?!', '🎵 🎶', '* * *']) {
    for (const mode of [stub.empty(), stub.json({ audio: null }), stub.openAiError(500), stub.openAiError(404)]) {
      setMode(failover, 0, mode);
      await assert.rejects(failover.provider.synthesize({ ...UTTERANCE, text }, NEVER), SpeechError);
    }
  }
  t.equal(await failover.metric(AVAILABLE), 1);
  setMode(failover, 0, stub.empty());
  for (const text of ['Å', '7', '日本']) {
    await assert.rejects(failover.provider.synthesize({ ...UTTERANCE, text }, NEVER), SpeechError);
  }
  t.equal(await failover.metric(AVAILABLE), 0);
});

test('the deadline covers all upstreams together', async (t) => {
  const failover = await startFailover(t, { count: 3, timeoutMs: 30_000, silencePercent: 1 });
  for (const index of [0, 1, 2]) setMode(failover, index, stub.hangBeforeHeaders());
  const deadline = AbortSignal.timeout(1500);
  await fails(failover.speak(deadline), UNAVAILABLE);
  t.equal(deadline.aborted, true, 'the last one is asked until then');
  t.strictSame(failover.asked(), [1, 1, 1]);

  const late = await startFailover(t, { timeoutMs: 10_000 });
  setMode(late, 0, stub.hangBeforeHeaders());
  await fails(late.speak(AbortSignal.timeout(200)), UNAVAILABLE);
  t.strictSame(late.asked(), [1, 0], 'no upstream is asked after the deadline');
  t.equal(await late.metric('speechgate_upstream_available{upstream="first"}'), 1);
});

test('audio aborted after the deadline is not synthesized again', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.hangInBody());
  const deadline = AbortSignal.timeout(300);
  await fails(collectSpeech(failover.provider, UTTERANCE, deadline), UNAVAILABLE);
  t.strictSame(failover.asked(), [1, 0]);
});

test('a job whose model has left the catalog is unavailable', async (t) => {
  const failover = await startFailover(t, {});
  const gone = failover.provider.synthesize({ ...UTTERANCE, modelId: 'gone' }, NEVER);
  await assert.rejects(gone, (error) => error instanceof SpeechError && error.code === 'TTS_UNAVAILABLE');
});

test('metrics count and time each upstream by name', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.openAiError(500));
  for (let turn = 0; turn < 2; turn++) await read(await failover.speak());
  const { metric } = failover;
  t.equal(await metric('speechgate_upstream_requests_total{upstream="first",outcome="TTS_UPSTREAM_ERROR"}'), 2);
  t.equal(await metric('speechgate_upstream_requests_total{upstream="second",outcome="ok"}'), 2);
  for (const upstream of ['first', 'second']) {
    t.equal(await metric(`speechgate_upstream_available{upstream="${upstream}"}`), 1);
  }
});

const BROKEN = 3;
const AVAILABLE = 'speechgate_upstream_available{upstream="first"}';

const first = ({ upstreams }: Failover) => upstreams[0] as stub.StubUpstream;

const CHECKED = { charactersPerSecond: { min: 2, max: 40 } };
const SENTENCES = 'The canary sings in the morning, and sleeps at night. It likes seeds.';
const LETTERS = SENTENCES.replaceAll(/[^a-z]/gi, '').length;
const toneOf = (seconds: number) => toneMp3(440, 24_000, seconds);
const waveOf = (seconds: number) => toneWave(440, seconds, { encoding: 'int', bits: 16 });
const waveMode = (bytes: Uint8Array) => stub.body(bytes, { contentType: 'audio/wav' });
const right = stub.body(await toneOf(LETTERS / 15));

for (const [name, mode, failure] of [
  ['far too short', stub.body(await toneOf(LETTERS / 50)), 'wrong_length'],
  ['far too long', stub.body(await toneOf(LETTERS / 1.5)), 'wrong_length'],
  ['far too short WAV', waveMode(waveOf(LETTERS / 50)), 'wrong_length'],
  ['silent', stub.mp3(4_000), 'silence'],
  ['silent WAV', stub.wav(4_000), 'silence'],
] as const) {
  test(`with charactersPerSecond, ${name} audio is a failure of its upstream`, async (t) => {
    const failover = await startFailover(t, { model: CHECKED });
    setMode(failover, 0, mode);
    setMode(failover, 1, right);
    for (let turn = 0; turn < BROKEN; turn++) {
      const { upstream } = await collectSpeech(failover.provider, { ...UTTERANCE, text: SENTENCES }, NEVER);
      t.equal(upstream?.name, 'second');
    }
    const counted = `speechgate_upstream_failures_total{upstream="first",reason="${failure}"}`;
    t.equal(await failover.metric(counted), BROKEN);
    t.equal(await failover.metric(AVAILABLE), 0);
    setMode(failover, 1, mode);
    const failed = collectSpeech(failover.provider, { ...UTTERANCE, text: SENTENCES }, NEVER);
    await fails(failed, { code: 'TTS_UPSTREAM_ERROR', transient: true });
  });
}

for (const [name, utterance, seconds, model] of [
  ['a short text', { text: '1,234,567,890,123,456' }, 12, CHECKED],
  ['a text of few words and many dashes', { text: `Contents ${'- '.repeat(500)}` }, 1, CHECKED],
  ['a text at twice the speed', { text: SENTENCES, speed: 2 }, LETTERS / 60, CHECKED],
  ['any text without charactersPerSecond', { text: SENTENCES }, 0.2, {}],
] as const) {
  test(`the length of audio is not wrong for ${name}`, async (t) => {
    const failover = await startFailover(t, { model });
    setMode(failover, 0, stub.body(await toneOf(seconds)));
    const spoken = await collectSpeech(failover.provider, { ...UTTERANCE, ...utterance }, NEVER);
    t.equal(spoken.upstream?.name, 'first');
  });
}

test('silence is right for a text without words, and without charactersPerSecond', async (t) => {
  const checked = await startFailover(t, { model: CHECKED });
  t.equal((await collectSpeech(checked.provider, { ...UTTERANCE, text: '…' }, NEVER)).upstream?.name, 'first');
  const unchecked = await startFailover(t, {});
  t.equal((await collectSpeech(unchecked.provider, UTTERANCE, NEVER)).upstream?.name, 'first');
});

test('another speed than 1 is not asked of an upstream without speeds', async (t) => {
  const failover = await startFailover(t, { first: { speed: false } });
  const speakAt = async (speed: number) =>
    (await failover.provider.synthesize({ ...UTTERANCE, speed }, NEVER)).upstream;
  t.strictSame([(await speakAt(1))?.name, (await speakAt(1.25))?.name], ['first', 'second']);
  setMode(failover, 1, stub.openAiError(500));
  await fails(failover.provider.synthesize({ ...UTTERANCE, speed: 0.8 }, NEVER), {
    code: 'TTS_UPSTREAM_ERROR',
    transient: true,
  });
  t.strictSame(failover.asked(), [1, 2]);
});

async function hear(failover: Failover): Promise<string | undefined> {
  const speech = await failover.speak();
  await read(speech);
  return speech.upstream?.name;
}

/** Lets the first upstream fail until it is left alone. */
async function breakFirst(failover: Failover, mode = stub.openAiError(500)): Promise<void> {
  first(failover).mode = mode;
  for (let turn = 0; turn < BROKEN; turn++) assert.equal(await hear(failover), 'second');
  assert.equal(await failover.metric(AVAILABLE), 0);
}

test('an upstream that fails three times in a row is skipped until a probe succeeds', async (t) => {
  const failover = await startFailover(t, {});
  await breakFirst(failover);
  for (let turn = 0; turn < 5; turn++) t.equal(await hear(failover), 'second');
  t.strictSame(failover.asked(), [BROKEN, BROKEN + 5]);
  first(failover).mode = stub.mp3();
  await until(async () => (await failover.metric(AVAILABLE)) === 1);
  t.strictSame(failover.probes(0), ['GET /v1/models Bearer key of first']);
  t.equal(await hear(failover), 'first');
});

test('a success resets the count of failures', async (t) => {
  const failover = await startFailover(t, {});
  for (let turn = 0; turn < 3; turn++) {
    first(failover).mode = stub.openAiError(500);
    for (let failures = 1; failures < BROKEN; failures++) t.equal(await hear(failover), 'second');
    first(failover).mode = stub.mp3();
    t.equal(await hear(failover), 'first');
  }
});

test('after a probe one synthesis at a time tries the upstream, and failure backs off', async (t) => {
  const failover = await startFailover(t, {});
  await breakFirst(failover);
  await until(async () => (await failover.metric(AVAILABLE)) === 1);
  const drip = new stub.ControlledStream();
  first(failover).mode = drip.mode;
  const trial = failover.speak();
  await drip.opened;
  const others = await Promise.all(Array.from({ length: 10 }, () => hear(failover)));
  t.strictSame([...new Set(others)], ['second']);
  t.equal(failover.asked()[0], BROKEN + 1);
  drip.reset();
  t.equal((await trial).upstream?.name, 'second');
  t.equal(await failover.metric(AVAILABLE), 0);
  const leftAloneAt = performance.now();
  await until(() => failover.probes(0).length === 2);
  const waitedMs = performance.now() - leftAloneAt;
  t.ok(waitedMs > 1400, `the second probe came after ${waitedMs} ms`);
});

test('an upstream that answers probes with an error stays skipped', async (t) => {
  const failover = await startFailover(t, {});
  await breakFirst(failover);
  const { url } = first(failover);
  await first(failover).close();
  const port = Number(new URL(url).port);
  let probes = 0;
  const server = createServer((_request, response) => {
    probes++;
    response.writeHead(503).end();
  }).listen(port, '127.0.0.1');
  t.teardown(() => server.close());
  await until(() => probes > 0);
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(await failover.metric(AVAILABLE), 0);
});

test("an upstream's Retry-After delays its probe", async (t) => {
  const failover = await startFailover(t, {});
  const startedAt = performance.now();
  await breakFirst(failover, stub.tooManyRequests('2'));
  await until(() => failover.probes(0).length === 1);
  t.ok(performance.now() - startedAt > 1990);
});

test('when all upstreams are unavailable, they are tried in order and can recover', async (t) => {
  const failover = await startFailover(t, {});
  const [, second] = failover.upstreams;
  assert.ok(second);
  for (const upstream of failover.upstreams) upstream.mode = stub.resetBeforeHeaders();
  for (let turn = 0; turn < 5; turn++) await fails(failover.speak(), UNAVAILABLE);
  t.strictSame(failover.asked(), [5, 5]);
  second.mode = stub.mp3();
  t.equal(await hear(failover), 'second');
  t.strictSame(failover.asked(), [6, 6]);
  t.equal(await hear(failover), 'second');
  t.strictSame(failover.asked(), [6, 7], 'it is asked first now');
});

test('the only upstream is tried even while unavailable after timeouts', async (t) => {
  const failover = await startFailover(t, { count: 1, timeoutMs: 300 });
  first(failover).mode = stub.hangBeforeHeaders();
  for (let turn = 0; turn < BROKEN; turn++) await fails(failover.speak(AbortSignal.timeout(300)), UNAVAILABLE);
  t.equal(await failover.metric(AVAILABLE), 0);
  first(failover).mode = stub.mp3();
  t.equal(await hear(failover), 'first');
  t.equal(await failover.metric(AVAILABLE), 1);
});

test('aborting the signal stops a synthesis at once', async (t) => {
  t.test('before the call, without sending anything', async (t) => {
    const { upstream, speak } = await start(t);
    await fails(speak(AbortSignal.abort()), UNAVAILABLE);
    t.equal(upstream.openConnections, 0);
  });

  for (const [name, mode] of [
    ['before the header', stub.hangBeforeHeaders()],
    ['before the magic bytes', stub.hangInBody(Uint8Array.of(0xff))],
  ] as const) {
    t.test(name, async (t) => {
      const { upstream, speak } = await start(t, mode);
      const abort = new AbortController();
      const speech = speak(abort.signal);
      await upstream.waitForRequests(1);
      abort.abort();
      await fails(speech, UNAVAILABLE);
      t.equal(await upstream.requests[0]?.closed, 'aborted');
    });
  }

  t.test('in the body, before unread chunks', async (t) => {
    const { upstream, speak } = await start(t, stub.hangInBody());
    const abort = new AbortController();
    const speech = await speak(abort.signal);
    abort.abort();
    await fails(read(speech), UNAVAILABLE);
    t.equal(await upstream.requests[0]?.closed, 'aborted');
  });
});

test('no listener stays on the signal after a synthesis', async (t) => {
  const { upstream, speak } = await start(t);
  const { signal } = new AbortController();
  await read(await speak(signal));
  upstream.mode = stub.cutChunked();
  await t.rejects(read(await speak(signal)));
  upstream.mode = stub.resetBeforeHeaders();
  await t.rejects(speak(signal));
  upstream.mode = stub.hangInBody();
  for await (const _chunk of (await speak(signal)).audio) break;
  t.equal(getEventListeners(signal, 'abort').length, 0);
});

test('truncated audio throws TTS_UPSTREAM_ERROR', async (t) => {
  const mp3 = silentMp3(960);
  const wav = silentWav(500);
  const unsized = Buffer.from(wav);
  unsized.writeUInt32LE(0xffffffff, 4);
  unsized.writeUInt32LE(0xffffffff, 40);
  const close = { framing: 'close' } as const;
  const asWav = { contentType: 'audio/wav' };
  const cases: [string, Mode, typeof BROKEN_OFF?][] = [
    ['a reset in a chunked body', stub.resetInBody(mp3, { framing: 'chunked' })],
    ['an MP3 cut inside a frame, ended by the connection', stub.body(mp3.subarray(0, -100), close)],
    ['an MP3 cut inside a frame, ended properly', stub.body(mp3.subarray(0, -100)), UPSTREAM_ERROR],
    ['a WAV cut, ended by the connection', stub.body(wav.subarray(0, -100), { ...close, ...asWav })],
    ['a WAV of unknown size, chunked without its end', stub.cutChunked(unsized)],
  ];
  for (const [name, mode, error = BROKEN_OFF] of cases) {
    t.test(name, async (t) => {
      const { upstream, speak } = await start(t, mode);
      await fails(read(await speak()), error);
      t.equal(upstream.requests.length, 1, 'no retry once bytes were received');
    });
  }

  t.test('a WAV header without samples is not audio', async (t) => {
    const { speak } = await start(t, stub.body(silentWav(0), asWav));
    await fails(speak(), UPSTREAM_ERROR);
  });

  t.test('a WAV of unknown size is complete when its body ended properly', async (t) => {
    const { speak } = await start(t, stub.body(unsized, { ...asWav, framing: 'chunked' }));
    t.strictSame(await read(await speak()), unsized);
  });

  t.test('a collected WAV of unknown size gets its real sizes', async (t) => {
    const failover = await startFailover(t, { count: 1 });
    setMode(failover, 0, stub.body(unsized, { ...asWav, framing: 'chunked' }));
    t.strictSame((await collectSpeech(failover.provider, UTTERANCE, NEVER)).audio, wav);
  });

  t.test('a collected MP3 keeps the frame that describes it', async (t) => {
    const failover = await startFailover(t, { count: 1 });
    const described = Buffer.concat([description({ frames: 40, fileBytes: mp3.length + 384 }), mp3]);
    setMode(failover, 0, stub.body(described, { framing: 'chunked' }));
    t.strictSame((await collectSpeech(failover.provider, UTTERANCE, NEVER)).audio, described);
  });
});

test('the size limit', async (t) => {
  t.test('an announced body beyond the limit is refused at once', async (t) => {
    const headers = { 'content-length': String(MAX_AUDIO_BYTES + 1) };
    const { upstream, speak } = await start(t, (_request, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg', ...headers });
      response.write(silentMp3(24));
    });
    await fails(speak(), UPSTREAM_ERROR);
    t.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('a body that grows beyond the limit is aborted', async (t) => {
    const megabyte = silentMp3(65_536);
    t.equal(MAX_AUDIO_BYTES % megabyte.length, MAX_AUDIO_BYTES - 63 * megabyte.length);
    const { upstream, speak } = await start(t, (_request, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg' });
      const more = () => response.write(megabyte, (error) => error || more());
      more();
    });
    await fails(read(await speak()), UPSTREAM_ERROR);
    t.equal(await upstream.requests[0]?.closed, 'aborted');
  });
});

test('a consumer that stops early aborts the connection', async (t) => {
  const { upstream, speak } = await start(t, stub.hangInBody());
  for await (const _chunk of (await speak()).audio) break;
  t.equal(await upstream.requests[0]?.closed, 'aborted');
});
