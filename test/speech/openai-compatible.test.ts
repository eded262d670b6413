import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mock } from 'node:test';
import { type Test, test } from 'tap';
import { openAiCompatible } from '../../src/speech/openai-compatible.ts';
import { MAX_AUDIO_BYTES, type Speech, SpeechError } from '../../src/speech/provider.ts';
import * as stub from '../support/stub-upstream.ts';
import { Drip, type Mode, silentMp3, silentWav } from '../support/stub-upstream.ts';

const UTTERANCE = { text: 'a canary sings', model: 'tts-1', voice: 'alloy', speed: 1.25 };
const NEVER = new AbortController().signal;

async function start(t: Test, mode?: Mode, options: { firstByteTimeoutMs?: number; apiKey?: string } = {}) {
  const upstream = await stub.startStubUpstream(mode ? { mode } : {});
  const provider = openAiCompatible({ baseUrl: upstream.url, ...options });
  t.teardown(async () => {
    await upstream.close();
    await provider.close();
  });
  return { upstream, provider, speak: (signal = NEVER) => provider.synthesize(UTTERANCE, signal) };
}

/** A connection can be used again one turn of the event loop after its response. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

async function read(speech: Speech): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of speech.audio) chunks.push(chunk);
  return Buffer.concat(chunks);
}

type Expected = { code: string; transient: boolean; retryAfterSeconds?: number | undefined };

async function fails(promise: Promise<unknown>, expected: Expected): Promise<void> {
  await assert.rejects(promise, (error: unknown) => {
    assert.ok(error instanceof SpeechError, `${error}`);
    const { code, transient, retryAfterSeconds, message } = error;
    assert.deepEqual({ code, transient, retryAfterSeconds }, { retryAfterSeconds: undefined, ...expected });
    assert.doesNotMatch(message, /canary|127\.0\.0\.1|undici/i);
    return true;
  });
}

const UPSTREAM_ERROR = { code: 'TTS_UPSTREAM_ERROR', transient: false };
const BROKEN_OFF = { code: 'TTS_UPSTREAM_ERROR', transient: true };
const UNAVAILABLE = { code: 'TTS_UNAVAILABLE', transient: true };

test('request', async (t) => {
  t.test("is OpenAI's POST /audio/speech with a bearer token", async (t) => {
    const { upstream, speak } = await start(t, stub.mp3(), { apiKey: 'sk-test' });
    await read(await speak());
    const [request] = upstream.requests;
    assert.ok(request);
    assert.equal(`${request.method} ${request.path}`, 'POST /v1/audio/speech');
    assert.equal(request.headers['content-type'], 'application/json');
    assert.equal(request.headers.authorization, 'Bearer sk-test');
    assert.deepEqual(request.body, {
      model: 'tts-1',
      input: 'a canary sings',
      voice: 'alloy',
      speed: 1.25,
      response_format: 'mp3',
    });
  });

  t.test('keeps the path of the base URL and sends no authorization without a key', async (t) => {
    const { upstream } = await start(t);
    const provider = openAiCompatible({ baseUrl: upstream.url.replace('/v1', '/tenant/v1/') });
    t.teardown(() => provider.close());
    await read(await provider.synthesize(UTTERANCE, NEVER));
    assert.equal(upstream.requests[0]?.path, '/tenant/v1/audio/speech');
    assert.equal(upstream.requests[0]?.headers.authorization, undefined);
  });

  t.test('uses one kept-alive connection for requests in a row', async (t) => {
    const { upstream, speak } = await start(t);
    for (let i = 0; i < 3; i++) {
      await read(await speak());
      await turn();
    }
    assert.deepEqual(
      upstream.requests.map(({ connection }) => connection),
      [1, 1, 1],
    );
  });

  t.test('speaks many at once', async (t) => {
    const { speak } = await start(t);
    const audio = await Promise.all(Array.from({ length: 50 }, async () => read(await speak())));
    for (const body of audio) assert.deepEqual(body, silentMp3(1000));
  });
});

test('audio', async (t) => {
  for (const framing of ['length', 'chunked', 'close'] as const) {
    t.test(`passes MP3 and WAV through byte by byte the same (body framed by ${framing})`, async (t) => {
      const { upstream, speak } = await start(t, stub.mp3(1536, { framing }));
      const mp3 = await speak();
      assert.equal(mp3.mimeType, 'audio/mpeg');
      assert.deepEqual(await read(mp3), silentMp3(1536));

      upstream.mode = stub.wav(500, { framing });
      const wav = await speak();
      assert.equal(wav.mimeType, 'audio/wav');
      assert.deepEqual(await read(wav), silentWav(500));
    });
  }

  for (const contentType of ['Audio/MPEG; charset=binary', 'audio/mp3', 'audio/x-mpeg', 'application/octet-stream']) {
    t.test(`accepts MP3 as ${contentType}`, async (t) => {
      const { speak } = await start(t, stub.mp3(100, { contentType }));
      assert.equal((await speak()).mimeType, 'audio/mpeg');
    });
  }

  for (const contentType of ['audio/x-wav', 'audio/wave', 'audio/vnd.wave', 'application/octet-stream', 'audio/mpeg']) {
    t.test(`is a WAV by its magic bytes when it comes as ${contentType}`, async (t) => {
      const { speak } = await start(t, stub.wav(100, { contentType }));
      assert.equal((await speak()).mimeType, 'audio/wav');
    });
  }

  for (const [name, bytes] of [
    ['MP3', silentMp3(48)],
    ['WAV', silentWav(1)],
  ] as const) {
    t.test(`waits for the magic bytes of ${name} when they drip one at a time`, async (t) => {
      const drip = new Drip();
      const { speak } = await start(t, drip.mode);
      let isResolved = false;
      const speech = speak().then((value) => {
        isResolved = true;
        return value;
      });
      await drip.opened;
      for (const byte of bytes.subarray(0, 3)) await drip.write(Uint8Array.of(byte));
      assert.equal(isResolved, false);
      for (const byte of bytes.subarray(3)) await drip.write(Uint8Array.of(byte));
      drip.end();
      assert.deepEqual(await read(await speech), bytes);
    });
  }

  t.test('hands over each chunk while the upstream is still speaking', async (t) => {
    const drip = new Drip();
    const { speak } = await start(t, drip.mode);
    const speech = speak();
    await drip.opened;
    const frame = silentMp3(24);
    await drip.write(frame);
    const chunks = (await speech).audio[Symbol.asyncIterator]();
    assert.deepEqual((await chunks.next()).value, frame);
    for (let i = 0; i < 5; i++) {
      await drip.write(frame);
      assert.deepEqual((await chunks.next()).value, frame);
    }
    drip.end();
    assert.equal((await chunks.next()).done, true);
  });

  t.test('loses nothing when the consumer starts late and the body is large', async (t) => {
    const large = silentMp3(200_000);
    const { upstream, speak } = await start(t, stub.body(large, { framing: 'chunked' }));
    const late = await speak();
    upstream.mode = stub.mp3(24);
    await read(await speak());
    assert.ok((await read(late)).equals(large));
  });

  t.test('follows interim responses to the final one', async (t) => {
    const { speak } = await start(t, (request, response) => {
      response.writeEarlyHints({ link: '</x>; rel=preload' });
      stub.mp3(24)(request, response);
    });
    assert.deepEqual(await read(await speak()), silentMp3(24));
  });
});

test('R9 the upstream answered with an error or with something that is not audio: TTS_UPSTREAM_ERROR', async (t) => {
  const cases: [string, Mode, Expected][] = [
    ['an error in the shape of OpenAI', stub.openAiError(401, 'canary'), UPSTREAM_ERROR],
    ['an error of FastAPI that repeats the text', stub.fastApiError(), UPSTREAM_ERROR],
    ['404', stub.openAiError(404), UPSTREAM_ERROR],
    ['500', stub.openAiError(500, 'canary'), BROKEN_OFF],
    ['502 with HTML', stub.html(502), BROKEN_OFF],
    ['200 with HTML', stub.html(), UPSTREAM_ERROR],
    ['200 with JSON', stub.json({ canary: 1 }), UPSTREAM_ERROR],
    ['JSON labelled as audio', stub.body('{"canary":1}'), UPSTREAM_ERROR],
    ['garbage labelled as audio', stub.garbage(), UPSTREAM_ERROR],
    ['garbage in an octet stream', stub.garbage('application/octet-stream'), UPSTREAM_ERROR],
    ['MP3 labelled as text', stub.mp3(24, { contentType: 'text/plain' }), UPSTREAM_ERROR],
    ['an empty body', stub.empty(), UPSTREAM_ERROR],
    ['an empty chunked body', stub.empty({ framing: 'chunked' }), UPSTREAM_ERROR],
    ['an empty body closed by the connection', stub.empty({ framing: 'close' }), UPSTREAM_ERROR],
    ['three bytes of MP3', stub.body(silentMp3(24).subarray(0, 3)), UPSTREAM_ERROR],
    ['204', (_request, response) => response.writeHead(204, { 'content-type': 'audio/mpeg' }).end(), UPSTREAM_ERROR],
    ['304', (_request, response) => response.writeHead(304).end(), UPSTREAM_ERROR],
    ['an unasked-for 100', (_request, response) => response.writeContinue(), UPSTREAM_ERROR],
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
  for (const [name, mode, expected] of cases) {
    t.test(name, async (t) => {
      const { upstream, speak } = await start(t, mode);
      await fails(speak(), expected);
      assert.equal(upstream.requests.length, 1);
    });
  }

  t.test('a redirect, which is not followed', async (t) => {
    const { upstream, speak } = await start(t);
    for (const status of [301, 302, 303, 307, 308]) {
      upstream.mode = stub.redirect(`${upstream.url}/audio/speech`, status);
      await fails(speak(), UPSTREAM_ERROR);
    }
    assert.equal(upstream.requests.length, 5);
  });

  t.test('keeps the connection after a short error', async (t) => {
    const { upstream, speak } = await start(t);
    for (const mode of [stub.fastApiError(), stub.html(502), stub.garbage(), stub.empty()]) {
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
    assert.deepEqual(new Set(upstream.requests.map(({ connection }) => connection)), new Set([1]));
  });

  t.test('cuts the connection when an error is long', async (t) => {
    const drip = new Drip({ status: 500, contentType: 'text/plain' });
    const { upstream, speak } = await start(t, drip.mode, { firstByteTimeoutMs: 1_000_000 });
    await fails(speak(), BROKEN_OFF);
    await drip.write(Buffer.alloc(10_000, 0x61));
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('cuts the connection when an error never ends', async (t) => {
    const drip = new Drip({ status: 500, contentType: 'text/plain' });
    const { upstream, speak } = await start(t, drip.mode, { firstByteTimeoutMs: 1000 });
    t.teardown(() => mock.reset());
    mock.timers.enable({ apis: ['setTimeout'] });
    await fails(speak(), BROKEN_OFF);
    mock.timers.tick(1000);
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });
});

test('R9 the upstream can not be reached, is too slow or sheds load: TTS_UNAVAILABLE', async (t) => {
  const inAMinute = () => new Date(Date.now() + 60_000).toUTCString();
  const retryAfter: [string, string | undefined, number | undefined][] = [
    ['seconds', '7', 7],
    ['zero', '0', 1],
    ['far too many seconds', '99999999999', 3600],
    ['a date in the past', 'Sun, 06 Nov 1994 08:49:37 GMT', 1],
    ['a date beyond an hour', 'Fri, 06 Nov 2895 08:49:37 GMT', 3600],
    ['neither', 'soon', undefined],
    ['a negative number', '-5', undefined],
    ['none', undefined, undefined],
  ];
  for (const [name, value, seconds] of retryAfter) {
    t.test(`429 with Retry-After: ${name}`, async (t) => {
      const { speak } = await start(t, stub.tooManyRequests(value));
      await fails(speak(), { ...UNAVAILABLE, retryAfterSeconds: seconds });
    });
  }

  t.test('503 with a date', async (t) => {
    const { speak } = await start(t, stub.openAiError(503, 'canary', { 'retry-after': inAMinute() }));
    await assert.rejects(speak(), ({ code, retryAfterSeconds }: SpeechError) => {
      assert.equal(code, 'TTS_UNAVAILABLE');
      assert.ok(retryAfterSeconds && retryAfterSeconds > 1 && retryAfterSeconds <= 60, `${retryAfterSeconds}`);
      return true;
    });
  });

  t.test('refused', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    const provider = openAiCompatible({ baseUrl: `http://127.0.0.1:${port}/v1` });
    await fails(provider.synthesize(UTTERANCE, NEVER), UNAVAILABLE);
    await provider.close();
  });

  t.test('unknown host', async () => {
    const provider = openAiCompatible({ baseUrl: 'http://speech.invalid/v1' });
    await fails(provider.synthesize(UTTERANCE, NEVER), UNAVAILABLE);
    await provider.close();
  });

  for (const [name, mode] of [
    ['reset', stub.resetBeforeHeaders()],
    ['closed', stub.closeBeforeHeaders()],
  ] as const) {
    t.test(`a fresh connection that is ${name} before a response, which is not tried again`, async (t) => {
      const { upstream, speak } = await start(t, mode);
      await fails(speak(), UNAVAILABLE);
      assert.equal(upstream.requests.length, 1);
    });
  }

  t.test('no TLS where TLS was asked for', async (t) => {
    const { upstream } = await start(t);
    const provider = openAiCompatible({ baseUrl: upstream.url.replace('http:', 'https:') });
    await fails(provider.synthesize(UTTERANCE, NEVER), UNAVAILABLE);
    await provider.close();
  });

  t.test('no header within the first-byte timeout', async (t) => {
    const { upstream, speak } = await start(t, stub.hangBeforeHeaders(), { firstByteTimeoutMs: 30 });
    await fails(speak(), UNAVAILABLE);
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('a header and no audio within the first-byte timeout', async (t) => {
    const { speak } = await start(t, stub.hangInBody(silentMp3(24).subarray(0, 3)), { firstByteTimeoutMs: 100 });
    await fails(speak(), UNAVAILABLE);
  });

  t.test('the first-byte timeout does not count once audio flows', async (t) => {
    const drip = new Drip();
    const { speak } = await start(t, drip.mode, { firstByteTimeoutMs: 1000 });
    t.teardown(() => mock.reset());
    mock.timers.enable({ apis: ['setTimeout'] });
    const speech = speak();
    await drip.opened;
    await drip.write(silentMp3(24));
    const audio = read(await speech);
    mock.timers.tick(1000);
    drip.end();
    assert.equal((await audio).length, silentMp3(24).length);
  });
});

test('the signal stops everything at once', async (t) => {
  t.test('before the call: nothing is sent', async (t) => {
    const { upstream, speak } = await start(t);
    await fails(speak(AbortSignal.abort()), UNAVAILABLE);
    assert.equal(upstream.openConnections, 0);
  });

  t.test('while connecting', async (t) => {
    const { upstream, provider, speak } = await start(t);
    const abort = new AbortController();
    const speech = speak(abort.signal);
    abort.abort();
    await fails(speech, UNAVAILABLE);
    await read(await speak());
    await provider.close();
    assert.equal(upstream.requests.length, 1);
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
      assert.equal(await upstream.requests[0]?.closed, 'aborted');
    });
  }

  t.test('in the body, ahead of chunks that were not read yet', async (t) => {
    const { upstream, speak } = await start(t, stub.hangInBody());
    const abort = new AbortController();
    const speech = await speak(abort.signal);
    abort.abort();
    await fails(read(speech), UNAVAILABLE);
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('in the body, while the consumer waits for the next chunk', async (t) => {
    const { upstream, speak } = await start(t, stub.hangInBody());
    const abort = new AbortController();
    const audio = read(await speak(abort.signal));
    abort.abort();
    await fails(audio, UNAVAILABLE);
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });
});

test('leaves no listener on the signal, however a synthesis ends', async (t) => {
  const { upstream, speak } = await start(t);
  const { signal } = new AbortController();
  await read(await speak(signal));
  upstream.mode = stub.cutChunked();
  await assert.rejects(read(await speak(signal)));
  upstream.mode = stub.resetBeforeHeaders();
  await assert.rejects(speak(signal));
  upstream.mode = stub.hangInBody();
  for await (const _chunk of (await speak(signal)).audio) break;
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('half a sentence is not sold: audio that was cut off throws TTS_UPSTREAM_ERROR', async (t) => {
  const mp3 = silentMp3(960);
  const wav = silentWav(500);
  const unsized = Buffer.from(wav);
  unsized.writeUInt32LE(0xffffffff, 4);
  unsized.writeUInt32LE(0xffffffff, 40);
  const close = { framing: 'close' } as const;
  const asWav = { contentType: 'audio/wav' };
  const cases: [string, Mode][] = [
    ['Content-Length larger than what came', stub.contentLengthTooLarge()],
    ['a chunked body without its end', stub.cutChunked()],
    ['a reset in a body with Content-Length', stub.resetInBody()],
    ['a reset in a chunked body', stub.resetInBody(mp3, { framing: 'chunked' })],
    ['an MP3 cut inside a frame, ended by the connection', stub.body(mp3.subarray(0, -100), close)],
    ['an MP3 cut inside a frame, ended properly', stub.body(mp3.subarray(0, -100))],
    ['a WAV cut, ended by the connection', stub.body(wav.subarray(0, -100), { ...close, ...asWav })],
    ['a WAV of unknown size, chunked without its end', stub.cutChunked(unsized)],
  ];
  for (const [name, mode] of cases) {
    t.test(name, async (t) => {
      const { upstream, speak } = await start(t, mode);
      await fails(read(await speak()), BROKEN_OFF);
      assert.equal(upstream.requests.length, 1, 'no retry once bytes were received');
    });
  }

  t.test('a WAV header without samples is no audio', async (t) => {
    const { speak } = await start(t, stub.body(silentWav(0), asWav));
    await fails(read(await speak()), UPSTREAM_ERROR);
  });

  t.test('a WAV of unknown size is whole when its body ended properly', async (t) => {
    const { speak } = await start(t, stub.body(unsized, { ...asWav, framing: 'chunked' }));
    assert.deepEqual(await read(await speak()), unsized);
  });
});

test('size bound', async (t) => {
  t.test('an announced body beyond it is refused at once', async (t) => {
    const headers = { 'content-length': String(MAX_AUDIO_BYTES + 1) };
    const { upstream, speak } = await start(t, (_request, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg', ...headers });
      response.write(silentMp3(24));
    });
    await fails(speak(), UPSTREAM_ERROR);
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('a body that grows beyond it is cut', async (t) => {
    const megabyte = silentMp3(65_536);
    assert.equal(MAX_AUDIO_BYTES % megabyte.length, MAX_AUDIO_BYTES - 63 * megabyte.length);
    const { upstream, speak } = await start(t, (_request, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg' });
      const more = () => response.write(megabyte, (error) => error || more());
      more();
    });
    await fails(read(await speak()), UPSTREAM_ERROR);
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });
});

test('a consumer that stops early cuts the connection', async (t) => {
  t.test('after the first chunk', async (t) => {
    const { upstream, speak } = await start(t, stub.hangInBody());
    for await (const _chunk of (await speak()).audio) break;
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });

  t.test('before the first chunk', async (t) => {
    const { upstream, speak } = await start(t, stub.hangInBody());
    const chunks = (await speak()).audio[Symbol.asyncIterator]();
    await chunks.return?.();
    assert.deepEqual(await chunks.next(), { value: undefined, done: true });
    assert.equal(await upstream.requests[0]?.closed, 'aborted');
  });
});

test('an idle connection that the upstream closes does not show', async (t) => {
  for (const [name, end] of [
    ['an orderly close', stub.closeBeforeHeaders()],
    ['a reset', stub.resetBeforeHeaders()],
  ] as const) {
    t.test(`${name} of a reused connection before a response: once more, on a fresh one`, async (t) => {
      const { upstream, speak } = await start(t);
      await read(await speak());
      await turn();
      upstream.mode = (request, response) => (request.connection === 1 ? end : stub.mp3())(request, response);
      assert.deepEqual(await read(await speak()), silentMp3(1000));
      await turn();
      await read(await speak());
      await turn();
      assert.deepEqual(
        upstream.requests.map(({ connection }) => connection),
        [1, 1, 2, 2],
      );
    });
  }

  t.test('only once', async (t) => {
    const { upstream, speak } = await start(t);
    await read(await speak());
    await turn();
    upstream.mode = stub.resetBeforeHeaders();
    await fails(speak(), UNAVAILABLE);
    assert.deepEqual(
      upstream.requests.map(({ connection }) => connection),
      [1, 1, 2],
    );
  });

  t.test('each of several stale connections gets its fresh one', async (t) => {
    const { upstream, speak } = await start(t);
    const inParallel = () => Promise.all(Array.from({ length: 5 }, async () => read(await speak())));
    await inParallel();
    await turn();
    const stale = upstream.requests.length;
    assert.equal(upstream.openConnections, stale);
    upstream.mode = (request, response) =>
      (request.connection <= stale ? stub.resetBeforeHeaders() : stub.mp3())(request, response);
    assert.equal((await inParallel()).length, 5);
  });

  t.test('not when the response had begun', async (t) => {
    const { upstream, speak } = await start(t);
    await read(await speak());
    await turn();
    upstream.mode = stub.raw('HTTP/1.1 20');
    await fails(speak(), UNAVAILABLE);
    assert.equal(upstream.requests.length, 2);
  });

  t.test('not when the signal fired', async (t) => {
    const { upstream, speak } = await start(t);
    await read(await speak());
    await turn();
    upstream.mode = stub.hangBeforeHeaders();
    const abort = new AbortController();
    const speech = speak(abort.signal);
    await upstream.waitForRequests(2);
    abort.abort();
    await fails(speech, UNAVAILABLE);
    assert.equal(await upstream.requests[1]?.closed, 'aborted');
    await turn();
    assert.equal(upstream.requests.length, 2);
  });
});

test('close', async (t) => {
  t.test('waits for what is running, closes the connections and refuses further work', async (t) => {
    const drip = new Drip();
    const { upstream, provider, speak } = await start(t, drip.mode);
    const speech = speak();
    await drip.opened;
    await drip.write(silentMp3(24));
    const audio = read(await speech);
    const closed = provider.close();
    drip.end();
    assert.equal((await audio).length, silentMp3(24).length);
    await closed;
    await provider.close();
    await upstream.waitForNoConnection();
    await fails(speak(), UNAVAILABLE);
  });
});

test('HTTPS', async (t) => {
  const certificate = selfSigned();
  const skip = certificate ? false : 'openssl is not installed';

  t.test('speaks when the certificate is trusted, and is TTS_UNAVAILABLE when it is not', { skip }, async (t) => {
    assert.ok(certificate);
    const upstream = await stub.startStubUpstream({ tls: certificate });
    const provider = openAiCompatible({ baseUrl: upstream.url });
    t.teardown(async () => {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
      await upstream.close();
      await provider.close();
    });
    await fails(provider.synthesize(UTTERANCE, NEVER), UNAVAILABLE);
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
    await read(await provider.synthesize(UTTERANCE, NEVER));
    await turn();
    const first = upstream.requests[0]?.connection;
    upstream.mode = (request, response) =>
      (request.connection === first ? stub.closeBeforeHeaders() : stub.mp3())(request, response);
    assert.deepEqual(await read(await provider.synthesize(UTTERANCE, NEVER)), silentMp3(1000));
    assert.equal(upstream.requests.length, 3, 'a stale TLS connection is replaced too');
  });
});

function selfSigned(): { key: string; cert: string } | undefined {
  const directory = mkdtempSync(join(tmpdir(), 'speechgate-tls-'));
  const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '1', '-out', cert];
  try {
    execFileSync('openssl', ['req', '-x509', ...newKey, ...subject], { stdio: 'ignore' });
    return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  } catch {
    return undefined;
  } finally {
    rmSync(directory, { recursive: true });
  }
}
