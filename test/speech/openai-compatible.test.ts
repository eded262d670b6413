import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { openAiCompatible } from '../../src/speech/openai-compatible.ts';
import * as stub from '../support/stub-upstream.ts';
import { ControlledStream, silentMp3, silentWav } from '../support/stub-upstream.ts';
import { fails, NEVER, read, start, turn, UNAVAILABLE, UTTERANCE } from './compatible-upstream.ts';

test('the request', async (t) => {
  t.test("is OpenAI's POST /audio/speech with a bearer token", async (t) => {
    const { upstream, speak } = await start(t, stub.mp3(), { apiKey: 'sk-test' });
    await read(await speak());
    const [request] = upstream.requests;
    assert.ok(request);
    t.equal(`${request.method} ${request.path}`, 'POST /v1/audio/speech');
    t.equal(request.headers['content-type'], 'application/json');
    t.equal(request.headers.authorization, 'Bearer sk-test');
    t.strictSame(request.body, {
      model: 'tts-1',
      input: 'a canary sings',
      voice: 'alloy',
      speed: 1.25,
      response_format: 'mp3',
    });
  });

  t.test('leaves out speed 1, since not every server supports it', async (t) => {
    const { upstream, provider } = await start(t);
    await read(await provider.synthesize({ ...UTTERANCE, speed: 1 }, NEVER));
    t.strictSame(Object.keys(upstream.requests[0]?.body ?? {}), ['model', 'input', 'voice', 'response_format']);
  });

  t.test('keeps the path of the base URL and sends no authorization without a key', async (t) => {
    const { upstream } = await start(t);
    const provider = openAiCompatible({
      baseUrl: upstream.url.replace('/v1', '/tenant/v1/'),
      firstByteTimeoutMs: 30_000,
    });
    t.teardown(() => provider.close());
    await read(await provider.synthesize(UTTERANCE, NEVER));
    t.equal(upstream.requests[0]?.path, '/tenant/v1/audio/speech');
    t.equal(upstream.requests[0]?.headers.authorization, undefined);
  });

  t.test('uses one kept-alive connection for requests in a row', async (t) => {
    const { upstream, speak } = await start(t);
    for (let i = 0; i < 3; i++) {
      await read(await speak());
      await turn();
    }
    t.strictSame(
      upstream.requests.map(({ connection }) => connection),
      [1, 1, 1],
    );
  });
});

test('the audio', async (t) => {
  t.test('passes MP3 and WAV through unchanged, however the body is framed', async (t) => {
    const { upstream, speak } = await start(t);
    for (const framing of ['length', 'chunked', 'close'] as const) {
      upstream.mode = stub.mp3(1536, { framing });
      const mp3 = await speak();
      t.equal(mp3.mimeType, 'audio/mpeg');
      t.strictSame(await read(mp3), silentMp3(1536), framing);
      upstream.mode = stub.wav(500, { framing });
      t.strictSame(await read(await speak()), silentWav(500), framing);
    }
  });

  t.test('detects WAV by its magic bytes, whatever its content type', async (t) => {
    const { upstream, speak } = await start(t);
    for (const contentType of ['audio/x-wav', 'application/octet-stream', 'audio/mpeg']) {
      upstream.mode = stub.wav(100, { contentType });
      t.equal((await speak()).mimeType, 'audio/wav', contentType);
    }
  });

  for (const [name, bytes] of [
    ['MP3', silentMp3(48)],
    ['WAV', silentWav(1)],
  ] as const) {
    t.test(`waits for the magic bytes of ${name} when they arrive one at a time`, async (t) => {
      const drip = new ControlledStream();
      const { speak } = await start(t, drip.mode);
      let isResolved = false;
      const speech = speak().then((value) => {
        isResolved = true;
        return value;
      });
      await drip.opened;
      for (const byte of bytes.subarray(0, 3)) await drip.write(Uint8Array.of(byte));
      t.equal(isResolved, false);
      for (const byte of bytes.subarray(3)) await drip.write(Uint8Array.of(byte));
      drip.end();
      t.strictSame(await read(await speech), bytes);
    });
  }

  t.test('passes on each chunk while the upstream is still sending', async (t) => {
    const drip = new ControlledStream();
    const { speak } = await start(t, drip.mode);
    const speech = speak();
    await drip.opened;
    const frame = silentMp3(24);
    await drip.write(frame);
    const chunks = (await speech).audio[Symbol.asyncIterator]();
    t.strictSame((await chunks.next()).value, frame);
    for (let i = 0; i < 5; i++) {
      await drip.write(frame);
      t.strictSame((await chunks.next()).value, frame);
    }
    drip.end();
    t.equal((await chunks.next()).done, true);
  });

  t.test('follows interim responses to the final one', async (t) => {
    const { speak } = await start(t, (request, response) => {
      response.writeEarlyHints({ link: '</x>; rel=preload' });
      stub.mp3(24)(request, response);
    });
    t.strictSame(await read(await speak()), silentMp3(24));
  });
});

test('HTTPS', async (t) => {
  const certificate = selfSigned();
  const skip = certificate ? false : 'openssl is not installed';

  t.test('requires a trusted certificate, else TTS_UNAVAILABLE', { skip }, async (t) => {
    assert.ok(certificate);
    const upstream = await stub.startStubUpstream({ tls: certificate });
    const provider = openAiCompatible({ baseUrl: upstream.url, firstByteTimeoutMs: 30_000 });
    t.teardown(async () => {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
      await upstream.close();
      await provider.close();
    });
    await fails(provider.synthesize(UTTERANCE, NEVER), UNAVAILABLE);
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
    await read(await provider.synthesize(UTTERANCE, NEVER));
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
