import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { test } from 'tap';
import { openAiCompatible } from '../../src/speech/openai-compatible.ts';
import type { SpeechError } from '../../src/speech/provider.ts';
import * as stub from '../support/stub-upstream.ts';
import { ControlledStream, type Mode, silentMp3 } from '../support/stub-upstream.ts';
import {
  BROKEN_OFF,
  type Expected,
  fails,
  NEVER,
  read,
  start,
  turn,
  UNAVAILABLE,
  UPSTREAM_ERROR,
  UTTERANCE,
} from './compatible-upstream.ts';
import { startFailover } from './failover.ts';

test('R9: an upstream error or invalid audio is TTS_UPSTREAM_ERROR', async (t) => {
  const cases: [string, Mode, Expected][] = [
    ["an error in OpenAI's format", stub.openAiError(401, 'canary'), UPSTREAM_ERROR],
    ['a FastAPI error that repeats the text', stub.fastApiError(), UPSTREAM_ERROR],
    ['404', stub.openAiError(404), UPSTREAM_ERROR],
    ['500', stub.openAiError(500, 'canary'), BROKEN_OFF],
    ['502 with HTML', stub.html(502), BROKEN_OFF],
    ['garbage in an octet stream', stub.garbage('application/octet-stream'), UPSTREAM_ERROR],
    ['MP3 labelled as text', stub.mp3(24, { contentType: 'text/plain' }), UPSTREAM_ERROR],
    ['an empty body closed by the connection', stub.empty({ framing: 'close' }), UPSTREAM_ERROR],
    ['three bytes of MP3', stub.body(silentMp3(24).subarray(0, 3)), UPSTREAM_ERROR],
    ['204', (_request, response) => response.writeHead(204, { 'content-type': 'audio/mpeg' }).end(), UPSTREAM_ERROR],
    ['304', (_request, response) => response.writeHead(304).end(), UPSTREAM_ERROR],
    ['an unexpected 100', (_request, response) => response.writeContinue(), UPSTREAM_ERROR],
    [
      'a switch of protocols',
      stub.raw('HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'),
      UPSTREAM_ERROR,
    ],
    ['something other than HTTP', stub.raw('SSH-2.0-canary\r\n'), UPSTREAM_ERROR],
    ['two lengths', stub.raw('HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n'), UPSTREAM_ERROR],
    ['endless headers', stub.raw(`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(20_000)}`), UPSTREAM_ERROR],
    ['a cut before the first byte of the body', stub.resetInBody(Buffer.alloc(0)), BROKEN_OFF],
  ];
  t.test('of one request', async (t) => {
    const { upstream, speak } = await start(t);
    for (const [index, [name, mode, expected]] of cases.entries()) {
      upstream.mode = mode;
      await fails(speak(), expected);
      t.equal(upstream.requests.length, index + 1, name);
    }
  });

  t.test('a redirect is not followed', async (t) => {
    const { upstream, speak } = await start(t);
    for (const status of [301, 302, 303, 307, 308]) {
      upstream.mode = stub.redirect(`${upstream.url}/audio/speech`, status);
      await fails(speak(), UPSTREAM_ERROR);
    }
    t.equal(upstream.requests.length, 5);
  });

  t.test('keeps the connection after a short error', async (t) => {
    const { upstream, speak } = await start(t);
    for (const mode of [stub.fastApiError(), stub.html(502), stub.empty()]) {
      upstream.mode = mode;
      await fails(speak(), {
        code: 'TTS_UPSTREAM_ERROR',
        transient: mode.length === 2 && upstream.requests.length === 1,
      });
      await upstream.requests.at(-1)?.closed;
      await turn();
    }
    upstream.mode = stub.mp3();
    await read(await speak());
    t.strictSame(new Set(upstream.requests.map(({ connection }) => connection)), new Set([1]));
  });

  t.test('closes the connection when an error is long', async (t) => {
    const drip = new ControlledStream({ status: 500, contentType: 'text/plain' });
    const { upstream, speak } = await start(t, drip.mode, { firstByteTimeoutMs: 1_000_000 });
    await fails(speak(), BROKEN_OFF);
    await drip.write(Buffer.alloc(10_000, 0x61));
    t.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('closes the connection when an error never ends', async (t) => {
    const drip = new ControlledStream({ status: 500, contentType: 'text/plain' });
    const { upstream, speak } = await start(t, drip.mode, { firstByteTimeoutMs: 1000 });
    t.teardown(() => mock.reset());
    mock.timers.enable({ apis: ['setTimeout'] });
    await fails(speak(), BROKEN_OFF);
    mock.timers.tick(1000);
    t.equal(await upstream.requests[0]?.closed, 'aborted');
  });
});

test('R9: an unreachable, slow or overloaded upstream is TTS_UNAVAILABLE', async (t) => {
  const inAMinute = () => new Date(Date.now() + 60_000).toUTCString();
  const retryAfter: [string, string | undefined, number | undefined][] = [
    ['seconds', '7', 7],
    ['zero', '0', 1],
    ['a fraction of a second', '0.2', 1],
    ['seconds with decimals', '7.01', 8],
    ['whole seconds with decimals', '7.0', 7],
    ['seconds without a digit before the point', '.5', undefined],
    ['an exponent', '1e3', undefined],
    ['far too many seconds', '99999999999', 3600],
    ['a date in the past', 'Sun, 06 Nov 1994 08:49:37 GMT', 1],
    ['a date beyond an hour', 'Fri, 06 Nov 2895 08:49:37 GMT', 3600],
    ['neither', 'soon', undefined],
    ['a negative number', '-5', undefined],
    ['none', undefined, undefined],
  ];
  t.test('429 with Retry-After', async (t) => {
    const { upstream, speak } = await start(t);
    for (const [name, value, seconds] of retryAfter) {
      t.comment(name);
      upstream.mode = stub.tooManyRequests(value);
      await fails(speak(), { ...UNAVAILABLE, retryAfterSeconds: seconds });
    }
  });

  t.test('503 with a date in Retry-After', async (t) => {
    const { speak } = await start(t, stub.openAiError(503, 'canary', { 'retry-after': inAMinute() }));
    await assert.rejects(speak(), ({ code, retryAfterSeconds }: SpeechError) => {
      assert.equal(code, 'TTS_UNAVAILABLE');
      assert.ok(retryAfterSeconds && retryAfterSeconds > 1 && retryAfterSeconds <= 60, `${retryAfterSeconds}`);
      return true;
    });
  });

  t.test('an unknown host', async () => {
    const provider = openAiCompatible({ baseUrl: 'http://speech.invalid/v1', firstByteTimeoutMs: 30_000 });
    await fails(provider.synthesize(UTTERANCE, NEVER), UNAVAILABLE);
    await provider.close();
  });

  t.test('a TLS request to a server without TLS', async (t) => {
    const { upstream } = await start(t);
    const provider = openAiCompatible({ baseUrl: upstream.url.replace('http:', 'https:'), firstByteTimeoutMs: 30_000 });
    await fails(provider.synthesize(UTTERANCE, NEVER), UNAVAILABLE);
    await provider.close();
  });

  t.test('no header within the first-byte timeout', async (t) => {
    const { upstream, speak } = await start(t, stub.hangBeforeHeaders(), { firstByteTimeoutMs: 300 });
    await fails(speak(), UNAVAILABLE);
    t.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('a header but no audio within the first-byte timeout', async (t) => {
    const { speak } = await start(t, stub.hangInBody(silentMp3(24).subarray(0, 3)), { firstByteTimeoutMs: 100 });
    await fails(speak(), UNAVAILABLE);
  });

  for (const timeoutMs of [45_000, 600_000]) {
    t.test(`SPEECH_TIMEOUT_MS ${timeoutMs} alone limits the first byte`, async (t) => {
      const { speak, upstreams } = await startFailover(t, { count: 1, timeoutMs });
      const [upstream] = upstreams;
      assert.ok(upstream);
      upstream.mode = stub.hangBeforeHeaders();
      t.teardown(() => mock.reset());
      mock.timers.enable({ apis: ['setTimeout'] });
      let isPending = true;
      const speech = speak().finally(() => {
        isPending = false;
      });
      const failed = fails(speech, UNAVAILABLE);
      await upstream.waitForRequests(1);
      mock.timers.tick(timeoutMs - 1);
      await turn();
      t.equal(isPending, true, 'it still waits just before the timeout');
      mock.timers.tick(1);
      await failed;
    });
  }

  t.test('the first-byte timeout does not apply once audio streams', async (t) => {
    const drip = new ControlledStream();
    const { speak } = await start(t, drip.mode, { firstByteTimeoutMs: 1000 });
    t.teardown(() => mock.reset());
    mock.timers.enable({ apis: ['setTimeout'] });
    const speech = speak();
    await drip.opened;
    await drip.write(silentMp3(24));
    const audio = read(await speech);
    mock.timers.tick(1000);
    drip.end();
    t.equal((await audio).length, silentMp3(24).length);
  });
});
