/** The official client of OpenAI, unchanged but for its base URL. */
import assert from 'node:assert/strict';
import { createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import OpenAI, {
  APIError,
  AuthenticationError,
  BadRequestError,
  ConflictError,
  InternalServerError,
  NotFoundError,
  RateLimitError,
} from 'openai';
import { type Test, test } from 'tap';
import { type BridgeUnderTest, HELLO, HELLO_MICRO_USD, openBridge } from '../../support/bridge.ts';
import { probe, withoutProbe } from '../../support/probed-audio.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { ControlledStream, openAiError } from '../../support/stub-upstream.ts';
import { startTcpProxy } from '../../support/tcp-proxy.ts';
import { until } from '../../support/until.ts';

const ORDER = { model: 'tts-1', voice: 'alloy', input: HELLO } as const;
const STREAMED = { bridge: { isDurable: false } };

const sdk = ({ bridge }: Pick<BridgeUnderTest, 'bridge'>, options: { apiKey?: string; maxRetries?: number } = {}) =>
  new OpenAI({ baseURL: bridge.url, apiKey: 'anything', ...options });

const open = async (t: Test, given?: Parameters<typeof openBridge>[1]) => {
  const opened = await openBridge(t, given);
  return { ...opened, openai: sdk(opened) };
};

/** The error that it rejects with. */
async function errorOf(promise: Promise<unknown>): Promise<APIError> {
  const error = await promise.then(
    () => undefined,
    (thrown) => thrown,
  );
  assert.ok(error instanceof APIError, String(error));
  return error;
}

test('a speech request returns the audio and its price', async (t) => {
  const { openai, upstream, balance, calls } = await open(t);
  const response = await openai.audio.speech.create(ORDER);
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), silentMp3(1_000));
  assert.equal(response.headers.get('content-type'), 'audio/mpeg');
  assert.equal(response.headers.get('x-speechgate-charged-micro-usd'), String(HELLO_MICRO_USD));
  assert.equal(response.headers.get('x-speechgate-charged-usd'), '0.000198');
  assert.equal(response.headers.get('x-speechgate-balance-micro-usd'), String(1_000_000n - HELLO_MICRO_USD));
  assert.equal(response.headers.get('x-speechgate-voice'), 'provider-a_alloy');
  assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  assert.equal(upstream.requests[0]?.body?.input, HELLO);
  assert.deepEqual(
    calls.map(({ end, chargedMicroUsd }) => [end, chargedMicroUsd]),
    [['spoken', HELLO_MICRO_USD]],
  );
});

test('with --no-durable audio streams to the client while it is synthesized', async (t) => {
  const { openai, upstream } = await open(t, STREAMED);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-bridge-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const asked = openai.audio.speech.create({ ...ORDER, stream_format: 'audio' });
  await drip.opened;
  await drip.write(silentMp3(960));
  const { body } = await asked;
  assert.ok(body);
  const reader = body.getReader();
  const { value } = await reader.read();
  assert.ok(value && value.length > 0, 'the first piece is here before the last one is made');
  reader.releaseLock();
  const path = join(folder, 'speech.mp3');
  const written = pipeline(Readable.fromWeb(body as never), createWriteStream(path));
  await drip.write(silentMp3(480));
  drip.end();
  await written;
  assert.deepEqual(Buffer.concat([value, await readFile(path)]), silentMp3(1_440));
});

test('stream_format sse sends the events that OpenAI documents', async (t) => {
  const { openai } = await open(t);
  const response = await openai.audio.speech.create({ ...ORDER, stream_format: 'sse' });
  assert.equal(response.headers.get('content-type'), 'text/event-stream');
  const events = (await response.text())
    .trim()
    .split('\n\n')
    .map((event) => JSON.parse(event.replace(/^data: /, '')));
  const last = events.pop();
  assert.equal(last.type, 'speech.audio.done');
  assert.deepEqual(Object.keys(last.usage), ['input_tokens', 'output_tokens', 'total_tokens']);
  assert.ok(events.every(({ type }) => type === 'speech.audio.delta'));
  assert.deepEqual(Buffer.concat(events.map(({ audio }) => Buffer.from(audio, 'base64'))), silentMp3(1_000));
});

test('models are listed, and unknown OpenAI names map to the catalog', async (t) => {
  const { openai, upstream, calls } = await open(t);
  const ids: string[] = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ['provider-a/tts-1', 'provider-a/tts-1-hd']);
  assert.equal((await openai.models.retrieve('provider-a/tts-1-hd')).owned_by, 'provider-a');
  assert.equal((await openai.models.retrieve('tts-1')).id, 'provider-a/tts-1');
  const missing = await errorOf(openai.models.retrieve('gpt-9'));
  assert.ok(missing instanceof NotFoundError);
  assert.equal(missing.code, 'model_not_found');

  const spoken = async (order: Partial<OpenAI.Audio.SpeechCreateParams>) => {
    await (await openai.audio.speech.create({ ...ORDER, ...order })).arrayBuffer();
    const { model, voice } = upstream.requests.at(-1)?.body ?? {};
    return [model, voice];
  };
  assert.deepEqual(await spoken({ model: 'provider-a/tts-1-hd', voice: 'provider-a_nova' }), ['tts-1-hd', 'nova']);
  assert.deepEqual(await spoken({ model: 'tts-1-hd', voice: { id: 'echo' } }), ['tts-1-hd', 'echo']);
  const stood = await spoken({ model: 'gpt-4o-mini-tts', voice: 'marin', instructions: 'Speak like a pirate.' });
  assert.equal(stood[0], 'tts-1');
  assert.deepEqual(await spoken({ model: 'gpt-4o-mini-tts', voice: 'marin' }), stood);
  assert.deepEqual(calls.at(-1)?.spokenWith?.model, 'provider-a/tts-1');
});

test('members that have no effect are named in a header', async (t) => {
  const { openai } = await open(t);
  const ignored = async (more: object) =>
    (await openai.audio.speech.create({ ...ORDER, ...more })).headers.get('x-speechgate-ignored');
  assert.equal(await ignored({}), null);
  assert.equal(await ignored({ instructions: '', lang: null }), null);
  assert.equal(await ignored({ instructions: 'Speak like a pirate.' }), 'instructions');
  assert.equal(
    await ignored({ instructions: 'Whisper.', backend: 'piper', 'no\r\nheader': 1 }),
    'instructions, backend',
  );
});

test('an invalid request is an uncharged BadRequestError that names the field', async (t) => {
  const { openai, balance } = await open(t);
  const cases = [
    [{ response_format: 'midi' }, 'response_format', /mp3, wav, pcm, flac, opus, aac/],
    [{ speed: 3 }, 'speed', /from 0.5 to 2/],
    [{ speed: 5 }, 'speed', /from 0.25 to 4/],
    [{ voice: 'nobody' }, 'voice', /provider-a_alloy/],
    [{ input: '' }, 'input', /text/],
    [{ input: 'x'.repeat(4_097) }, 'input', /4097 characters.* 4096/],
    [{ stream_format: 'smoke' }, 'stream_format', /audio or sse/],
  ] as const;
  for (const [change, param, message] of cases) {
    const error = await errorOf(openai.audio.speech.create({ ...ORDER, ...change } as never));
    assert.ok(error instanceof BadRequestError, param);
    assert.equal(error.param, param);
    assert.equal(error.type, 'invalid_request_error');
    assert.match(error.message, message);
  }
  assert.equal(await balance(), 1_000_000n);
});

test('insufficient funds are a RateLimitError that names the top-up command', async (t) => {
  const { openai, upstream, account, calls } = await open(t, { cents: 1 });
  const error = await errorOf(openai.audio.speech.create({ ...ORDER, input: 'x'.repeat(4_000) }));
  assert.ok(error instanceof RateLimitError);
  assert.deepEqual([error.type, error.code], ['insufficient_quota', 'insufficient_quota']);
  assert.match(error.message, /Run: speechgate top-up/);
  assert.doesNotMatch(JSON.stringify(calls[0]?.error) + error.message, new RegExp(account), 'the bearer id stays here');
  assert.equal(error.headers?.get('x-should-retry'), 'false');
  assert.equal(calls.length, 1);
  assert.equal(upstream.requests.length, 0);
});

test('a price over a cap is a RateLimitError, and nothing is charged', async (t) => {
  const { openai, balance, calls } = await open(t, { client: { maxPerRequestMicroUsd: 100n } });
  const error = await errorOf(openai.audio.speech.create(ORDER));
  assert.ok(error instanceof RateLimitError);
  assert.deepEqual([error.type, error.code], ['insufficient_quota', 'over_cap']);
  assert.match(error.message, /\$0\.000198.*\$0\.000100/);
  assert.equal(calls.length, 1);
  assert.equal(await balance(), 1_000_000n);
});

test('paid audio is delivered even if the budget cannot be read afterwards', async (t) => {
  const budget = { read: () => Promise.reject(new Error('The budget is busy.')), concludeLost: async () => {} };
  const { openai, calls } = await open(t, { bridge: { budget } });
  const response = await openai.audio.speech.create(ORDER);
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), silentMp3(1_000));
  assert.equal(response.headers.get('x-speechgate-budget-left-micro-usd'), null);
  assert.deepEqual([calls[0]?.end, calls[0]?.leftMicroUsd, calls[0]?.error], ['spoken', null, undefined]);
});

test('a null format counts as absent', async (t) => {
  const { openai } = await open(t);
  const response = await openai.audio.speech.create({ ...ORDER, response_format: null, stream_format: null } as never);
  assert.equal((await (response as Response).arrayBuffer()).byteLength, silentMp3(1_000).length);
});

test('the token is required as the API key', async (t) => {
  const opened = await open(t, { bridge: { token: 'sesame' } });
  const error = await errorOf(opened.openai.audio.speech.create(ORDER));
  assert.ok(error instanceof AuthenticationError);
  assert.equal(error.code, 'invalid_api_key');
  const response = await sdk(opened, { apiKey: 'sesame' }).audio.speech.create(ORDER);
  assert.equal((await response.arrayBuffer()).byteLength, silentMp3(1_000).length);
});

test('an upstream failure is an uncharged InternalServerError that may be retried', async (t) => {
  const { bridge, upstream, balance } = await open(t, STREAMED);
  upstream.mode = openAiError(500);
  const error = await errorOf(sdk({ bridge }, { maxRetries: 0 }).audio.speech.create(ORDER));
  assert.ok(error instanceof InternalServerError);
  assert.equal(error.status, 503);
  assert.match(error.headers?.get('retry-after') ?? '', /^\d+$/);
  assert.equal(error.headers?.get('x-should-retry'), null);
  await until(async () => (await balance()) === 1_000_000n);
});

test('an unknown outcome is a ConflictError, and a retry resumes that purchase', async (t) => {
  let gone: Awaited<ReturnType<typeof startTcpProxy>> | undefined;
  const { openai, balance, upstream, calls } = await open(t, {
    bridge: { isDurable: true },
    through: async (gateway) => {
      gone = await startTcpProxy(t, gateway);
      return gone.url;
    },
  });
  await openai.models.list();
  gone?.mute();
  const asked = errorOf(openai.audio.speech.create(ORDER));
  await until(async () => (await balance()) < 1_000_000n);
  gone?.cut();
  const error = await asked;
  assert.ok(error instanceof ConflictError, String(error));
  assert.equal(error.code, 'outcome_unknown');
  assert.equal(error.headers?.get('x-should-retry'), 'false');
  assert.equal(calls.length, 1);
  gone?.restore();
  const audio = await (await openai.audio.speech.create(ORDER)).arrayBuffer();
  assert.equal(audio.byteLength, silentMp3(1_000).length);
  assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  assert.equal(upstream.requests.length, 1);
});

test('a program that disconnects is charged, and the bridge reports the charge', async (t) => {
  const { openai, upstream, balance, calls } = await open(t, STREAMED);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const leaving = new AbortController();
  const asked = openai.audio.speech.create(ORDER, { signal: leaving.signal });
  await drip.opened;
  await drip.write(silentMp3(960));
  await asked;
  leaving.abort();
  await drip.write(silentMp3(960));
  await drip.write(silentMp3(960));
  drip.end();
  await until(() => calls.length === 1);
  assert.deepEqual([calls[0]?.end, calls[0]?.chargedMicroUsd], ['left', HELLO_MICRO_USD]);
  assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
});

test('audio that breaks off ends the response with an error', async (t) => {
  const { bridge, upstream, calls } = await open(t, STREAMED);
  for (const [response_format, input] of [
    ['mp3', 'Hello world'],
    ['pcm', 'Hello there'],
  ] as const) {
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const asked = sdk({ bridge }, { maxRetries: 0 }).audio.speech.create({ ...ORDER, input, response_format });
    await drip.opened;
    await drip.write(silentMp3(4_800));
    const response = await asked;
    drip.reset();
    await assert.rejects(response.arrayBuffer(), response_format);
  }
  await until(() => calls.length === 2);
  assert.deepEqual(
    calls.map(({ end, chargedMicroUsd, error }) => [end, chargedMicroUsd, error?.code]),
    [
      ['broken', 0n, 'audio_lost'],
      ['broken', 0n, 'audio_lost'],
    ],
  );
});

test('stopping waits for running speech to finish', async (t) => {
  const { openai, bridge, upstream } = await open(t, STREAMED);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const asked = openai.audio.speech.create(ORDER);
  await drip.opened;
  await drip.write(silentMp3(960));
  const response = await asked;
  const closed = bridge.close(10_000);
  await drip.write(silentMp3(480));
  drip.end();
  assert.equal((await response.arrayBuffer()).byteLength, silentMp3(1_440).length);
  await closed;
  await assert.rejects(sdk({ bridge }, { maxRetries: 0 }).models.list());
});

/** What programs send to an OpenAI speech service, read from their public source. */
interface RecordedRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Readonly<Record<string, unknown>>;
}

interface RecordedProgram {
  readonly program: string;
  /** Repository, commit and file in which the request is made. */
  readonly source: string;
  readonly requests: readonly RecordedRequest[];
  /** The audio that it expects. */
  readonly codec: 'mp3' | 'pcm_s16le';
}

const INPUT = 'Hello world';

const PROGRAMS: readonly RecordedProgram[] = [
  {
    program: 'Open WebUI',
    source: 'open-webui/open-webui@01fb3e46d3e5865b34b7d9ee2fcabbe380bbe52a backend/open_webui/routers/audio.py',
    // Its browser part names input and voice; the server adds the model, and whose request it is where that is set.
    requests: [
      { method: 'GET', path: '/v1/audio/models', headers: { 'user-agent': 'python-requests/2.32.3', accept: '*/*' } },
      { method: 'GET', path: '/v1/audio/voices', headers: { 'user-agent': 'python-requests/2.32.3', accept: '*/*' } },
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          authorization: 'Bearer sk-anything',
          'x-openwebui-user-name': 'Ada',
          'x-openwebui-user-id': '7',
          'x-openwebui-user-email': 'ada@example.com',
          'x-openwebui-user-role': 'user',
        },
        body: { input: INPUT, voice: 'alloy', model: 'tts-1' },
      },
    ],
    codec: 'mp3',
  },
  {
    program: 'SillyTavern, its OpenAI-compatible speech',
    source: 'SillyTavern/SillyTavern@00a72b5a71195ec03bab5a42c03655f6ebe672e3 src/endpoints/openai.js',
    // Without a key of its own it sends none after the word Bearer.
    requests: [
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: { 'content-type': 'application/json', authorization: 'Bearer ', 'user-agent': 'node-fetch' },
        body: { input: INPUT, response_format: 'mp3', voice: 'shimmer', speed: 1, model: 'tts-1' },
      },
    ],
    codec: 'mp3',
  },
  {
    program: "Home Assistant's OpenAI TTS integration",
    source:
      'sfortis/openai_tts@0460cd2fff52ffcf8fc436cecc1f512aa1117381 custom_components/openai_tts/openaitts_engine.py',
    requests: [
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          'user-agent': 'python-requests/2.32.3',
          accept: '*/*',
          'accept-encoding': 'gzip, deflate',
        },
        body: { model: 'tts-1', input: INPUT, voice: 'onyx', response_format: 'wav', speed: 1 },
      },
    ],
    codec: 'pcm_s16le',
  },
  {
    program: 'LibreChat, with speech of OpenAI and of LocalAI',
    source:
      'danny-avila/LibreChat@00b3bc32f0f5dd65befa49a0773dae7d26d8e587 api/server/services/Files/Audio/TTSService.js',
    // For LocalAI it gives the voice as the model, and no voice.
    requests: [
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/plain, */*',
          authorization: 'Bearer sk-anything',
          'user-agent': 'axios/1.8.2',
        },
        body: { input: INPUT, model: 'tts-1', voice: 'nova' },
      },
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/plain, */*',
          'user-agent': 'axios/1.8.2',
        },
        body: { input: INPUT, model: 'alloy', backend: 'piper' },
      },
    ],
    codec: 'mp3',
  },
];

// The requests of programs that speak OpenAI's speech API, each as its source makes it.

test('the bridge serves the recorded requests of known programs', { skip: withoutProbe }, async (t) => {
  const { origin, calls } = await openBridge(t);
  for (const { program, requests, codec } of PROGRAMS) {
    await t.test(program, async () => {
      for (const { method, path, headers, body } of requests) {
        const before = calls.length;
        const response = await fetch(`${origin}${path}`, {
          method,
          headers,
          ...(body && { body: JSON.stringify(body) }),
        });
        assert.equal(response.status, 200, path);
        if (method === 'GET') continue;
        const audio = Buffer.from(await response.arrayBuffer());
        const probed = await probe(audio, codec === 'mp3' ? 'mp3' : 'wav');
        assert.deepEqual([probed.codec, probed.channels], [codec, 1]);
        assert.ok(Math.abs(probed.seconds - 1) < 0.1, String(probed.seconds));
        const { isRepeated, chargedMicroUsd } = calls[before] ?? assert.fail();
        assert.equal(chargedMicroUsd, isRepeated ? 0n : HELLO_MICRO_USD);
      }
    });
  }

  await t.test('Open WebUI gets the id and name of each voice and the id of each model', async () => {
    const { voices } = (await (await fetch(`${origin}/v1/audio/voices`)).json()) as { voices: object[] };
    assert.deepEqual(voices[0], { id: 'provider-a_alloy', name: 'Alloy', voice: 'alloy' });
    const { models } = (await (await fetch(`${origin}/v1/audio/models`)).json()) as { models: { id: string }[] };
    assert.deepEqual(
      models.map(({ id }) => id),
      ['provider-a/tts-1', 'provider-a/tts-1-hd'],
    );
  });
});
