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
import { type BridgeUnderTest, HELLO, HELLO_MICRO_USD, openBridge } from '../support/bridge.ts';
import { Drip, openAiError, silentMp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';

const ORDER = { model: 'tts-1', voice: 'alloy', input: HELLO } as const;

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

test('speaks, and tells the price of each call', async (t) => {
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

test('streams to a file, as the audio is made', async (t) => {
  const { openai, upstream } = await open(t);
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-bridge-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const drip = new Drip();
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

test('events, as OpenAI documents them', async (t) => {
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

test('models, and names that the catalog has not', async (t) => {
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

test('what is wrong with a request is a BadRequestError, which names the field, and costs nothing', async (t) => {
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

test('no money is a RateLimitError of the kind insufficient_quota, asked once, with the way to get some', async (t) => {
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

test('over a cap likewise, and nothing leaves', async (t) => {
  const { openai, balance, calls } = await open(t, { client: { maxPerRequestMicroUsd: 100n } });
  const error = await errorOf(openai.audio.speech.create(ORDER));
  assert.ok(error instanceof RateLimitError);
  assert.deepEqual([error.type, error.code], ['insufficient_quota', 'over_cap']);
  assert.match(error.message, /\$0\.000198.*\$0\.000100/);
  assert.equal(calls.length, 1);
  assert.equal(await balance(), 1_000_000n);
});

test('audio that is paid for is spoken also where the budget cannot be read then', async (t) => {
  const budget = { read: () => Promise.reject(new Error('The budget is busy.')), concludeLost: async () => {} };
  const { openai, calls } = await open(t, { bridge: { budget } });
  const response = await openai.audio.speech.create(ORDER);
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), silentMp3(1_000));
  assert.equal(response.headers.get('x-speechgate-budget-left-micro-usd'), null);
  assert.deepEqual([calls[0]?.end, calls[0]?.leftMicroUsd, calls[0]?.error], ['spoken', null, undefined]);
});

test('null for a format is as if it was left out', async (t) => {
  const { openai } = await open(t);
  const response = await openai.audio.speech.create({ ...ORDER, response_format: null, stream_format: null } as never);
  assert.equal((await (response as Response).arrayBuffer()).byteLength, silentMp3(1_000).length);
});

test('a token is asked for as the API key', async (t) => {
  const opened = await open(t, { bridge: { token: 'sesame' } });
  const error = await errorOf(opened.openai.audio.speech.create(ORDER));
  assert.ok(error instanceof AuthenticationError);
  assert.equal(error.code, 'invalid_api_key');
  const response = await sdk(opened, { apiKey: 'sesame' }).audio.speech.create(ORDER);
  assert.equal((await response.arrayBuffer()).byteLength, silentMp3(1_000).length);
});

test('a failure of the upstream is an InternalServerError that may be retried, and is not charged', async (t) => {
  const { bridge, upstream, balance } = await open(t);
  upstream.mode = openAiError(500);
  const error = await errorOf(sdk({ bridge }, { maxRetries: 0 }).audio.speech.create(ORDER));
  assert.ok(error instanceof InternalServerError);
  assert.equal(error.status, 503);
  assert.match(error.headers?.get('retry-after') ?? '', /^\d+$/);
  assert.equal(error.headers?.get('x-should-retry'), null);
  await until(async () => (await balance()) === 1_000_000n);
});

test('an unknown outcome is a ConflictError, asked once; the same request then goes on with that purchase', async (t) => {
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

test('a program that leaves has paid, and is told on the terminal', async (t) => {
  const { openai, upstream, balance, calls } = await open(t);
  const drip = new Drip();
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

test('audio that breaks off is no whole answer', async (t) => {
  const { bridge, upstream, calls } = await open(t);
  for (const response_format of ['mp3', 'pcm'] as const) {
    const drip = new Drip();
    upstream.mode = drip.mode;
    const asked = sdk({ bridge }, { maxRetries: 0 }).audio.speech.create({ ...ORDER, response_format });
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
      ['broken', HELLO_MICRO_USD, 'audio_lost'],
      ['broken', HELLO_MICRO_USD, 'audio_lost'],
    ],
  );
});

test('stopping waits for what is being spoken', async (t) => {
  const { openai, bridge, upstream } = await open(t);
  const drip = new Drip();
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
