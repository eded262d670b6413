import assert from 'node:assert/strict';
import { test } from 'tap';
import { collectSpeech } from '../../src/speech/collect.ts';
import { SpeechError } from '../../src/speech/provider.ts';
import * as stub from '../support/stub-upstream.ts';
import { silentMp3 } from '../support/stub-upstream.ts';
import { FAULTS_BEFORE_AUDIO } from '../support/upstream-faults.ts';
import { BROKEN_OFF, fails, NEVER, read, UNAVAILABLE, UPSTREAM_ERROR } from './compatible-upstream.ts';
import { type Failover, startFailover } from './failover.ts';

const UTTERANCE = { text: 'a canary sings', model: 'name', voice: 'voice', speed: 1, modelId: 'acme/model' };

const setMode = ({ upstreams }: Failover, index: number, mode: stub.Mode) => {
  (upstreams[index] as stub.StubUpstream).mode = mode;
};

test('the first upstream speaks as long as it can, in its own words and with its own key', async (t) => {
  const failover = await startFailover(t, {});
  const speech = await failover.speak();
  assert.deepEqual(speech.upstream, { name: 'first', costPicoUsd: 100n });
  assert.deepEqual(await read(speech), silentMp3(1000));
  const [request] = failover.upstreams[0]?.requests ?? [];
  assert.deepEqual([request?.body?.model, request?.body?.voice], ['name', 'voice']);
  assert.equal(request?.headers.authorization, 'Bearer key of first');
  assert.deepEqual(failover.asked(), [1, 0]);
});

for (const [name, mode] of Object.entries(FAULTS_BEFORE_AUDIO)) {
  test(`${name} instead of audio: the next upstream speaks, in its own words and with its own key`, async (t) => {
    const failover = await startFailover(t, { timeoutMs: 3000 });
    setMode(failover, 0, mode);
    const speech = await failover.speak();
    assert.deepEqual(speech.upstream, { name: 'second', costPicoUsd: 1n });
    assert.deepEqual(await read(speech), silentMp3(1000));
    const [request] = failover.upstreams[1]?.requests ?? [];
    assert.deepEqual([request?.body?.model, request?.body?.voice], ['model of second', 'voice of second']);
    assert.equal(request?.headers.authorization, 'Bearer key of second');
    assert.deepEqual(failover.asked(), [1, 1]);
  });
}

test('nobody listens: the next upstream speaks, and the one that is gone is left alone at once', async (t) => {
  const failover = await startFailover(t, {});
  await failover.upstreams[0]?.close();
  assert.equal((await failover.speak()).upstream?.name, 'second');
  assert.equal(await failover.metric('speechgate_upstream_available{upstream="first"}'), 0);
});

for (const [name, mode] of Object.entries({
  'a reset within the audio': stub.resetInBody(),
  'audio that is shorter than announced': stub.contentLengthTooLarge(),
  'audio cut before its last chunk': stub.cutChunked(),
})) {
  test(`${name}: who collects it has the next upstream speak, who hands it on does not`, async (t) => {
    const failover = await startFailover(t, {});
    setMode(failover, 0, mode);
    const collected = await collectSpeech(failover.provider, UTTERANCE, NEVER);
    assert.deepEqual(collected.audio, silentMp3(1000));
    assert.equal(collected.upstream?.name, 'second');
    await fails(failover.speak().then(read), BROKEN_OFF);
    assert.deepEqual(failover.asked(), [2, 1]);
  });
}

test('who can use MP3 only has the next upstream speak where one gives WAV', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.hangInBody(stub.silentWav(500), { contentType: 'audio/wav' }));
  const { mimeType } = await collectSpeech(failover.provider, UTTERANCE, NEVER, 'audio/mpeg');
  assert.equal(mimeType, 'audio/mpeg');
  assert.equal(await failover.upstreams[0]?.requests[0]?.closed, 'aborted', 'what is of no use is not read on');
  setMode(failover, 1, stub.wav());
  await fails(collectSpeech(failover.provider, UTTERANCE, NEVER, 'audio/mpeg'), UPSTREAM_ERROR);
});

for (const status of [400, 413, 422]) {
  test(`status ${status} refuses the utterance: no other upstream is asked, and it speaks others`, async (t) => {
    const failover = await startFailover(t, {});
    setMode(failover, 0, stub.openAiError(status));
    for (let turn = 0; turn < 5; turn++) await fails(failover.speak(), UPSTREAM_ERROR);
    setMode(failover, 0, stub.mp3());
    assert.equal((await failover.speak()).upstream?.name, 'first');
    assert.deepEqual(failover.asked(), [6, 0]);
  });
}

test('where all fail, the first error is told that may pass, else the last one', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.html());
  setMode(failover, 1, stub.tooManyRequests('7'));
  await fails(failover.speak(), { ...UNAVAILABLE, retryAfterSeconds: 7 });
  setMode(failover, 0, stub.openAiError(500));
  await fails(failover.speak(), { code: 'TTS_UPSTREAM_ERROR', transient: true });
  setMode(failover, 1, stub.openAiError(422));
  await fails(failover.speak(), { code: 'TTS_UPSTREAM_ERROR', transient: true });
});

test('the deadline of a synthesis is that of all upstreams together', async (t) => {
  const failover = await startFailover(t, { count: 3, timeoutMs: 1500, silencePercent: 30 });
  for (const index of [0, 1, 2]) setMode(failover, index, stub.hangBeforeHeaders());
  const startedAt = performance.now();
  await fails(failover.speak(AbortSignal.timeout(1500)), UNAVAILABLE);
  const tookMs = performance.now() - startedAt;
  assert.deepEqual(failover.asked(), [1, 1, 1]);
  assert.ok(tookMs > 1400 && tookMs < 2200, `${tookMs} ms`);

  const late = await startFailover(t, { timeoutMs: 10_000 });
  setMode(late, 0, stub.hangBeforeHeaders());
  await fails(late.speak(AbortSignal.timeout(200)), UNAVAILABLE);
  assert.deepEqual(late.asked(), [1, 0], 'no upstream is asked after the deadline');
  assert.equal(await late.metric('speechgate_upstream_available{upstream="first"}'), 1);
});

test('audio that breaks off after the deadline is not spoken again', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.hangInBody());
  const deadline = AbortSignal.timeout(300);
  await fails(collectSpeech(failover.provider, UTTERANCE, deadline), UNAVAILABLE);
  assert.deepEqual(failover.asked(), [1, 0]);
});

test('a job of an earlier release is spoken by the model of that upstream name, one of no model by nobody', async (t) => {
  const failover = await startFailover(t, {});
  const { modelId: _, ...earlier } = UTTERANCE;
  assert.equal((await failover.provider.synthesize(earlier, NEVER)).upstream?.name, 'first');
  const gone = failover.provider.synthesize({ ...earlier, model: 'gone' }, NEVER);
  await assert.rejects(gone, (error) => error instanceof SpeechError && error.code === 'TTS_UNAVAILABLE');
});

test('each upstream is counted and timed by its name', async (t) => {
  const failover = await startFailover(t, {});
  setMode(failover, 0, stub.openAiError(500));
  for (let turn = 0; turn < 2; turn++) await read(await failover.speak());
  const { metric } = failover;
  assert.equal(await metric('speechgate_upstream_requests_total{upstream="first",outcome="TTS_UPSTREAM_ERROR"}'), 2);
  assert.equal(await metric('speechgate_upstream_requests_total{upstream="second",outcome="ok"}'), 2);
  assert.equal(await metric('speechgate_upstream_seconds_count{upstream="second"}'), 2);
  for (const upstream of ['first', 'second']) {
    assert.equal(await metric(`speechgate_upstream_available{upstream="${upstream}"}`), 1);
  }
});
