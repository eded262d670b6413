import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'tap';
import { MAX_AUDIO_BYTES } from '../../src/speech/provider.ts';
import * as stub from '../support/stub-upstream.ts';
import { type Mode, silentMp3, silentWav } from '../support/stub-upstream.ts';
import { BROKEN_OFF, fails, read, start, turn, UNAVAILABLE, UPSTREAM_ERROR } from './compatible-upstream.ts';

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
  const cases: [string, Mode, typeof BROKEN_OFF?][] = [
    ['Content-Length larger than what came', stub.contentLengthTooLarge()],
    ['a chunked body without its end', stub.cutChunked()],
    ['a reset in a body with Content-Length', stub.resetInBody()],
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
      assert.equal(upstream.requests.length, 1, 'no retry once bytes were received');
    });
  }

  t.test('a WAV header without samples is no audio', async (t) => {
    const { speak } = await start(t, stub.body(silentWav(0), asWav));
    await fails(speak(), UPSTREAM_ERROR);
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
