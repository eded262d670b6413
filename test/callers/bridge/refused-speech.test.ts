/** What the gateway tells as lasting is asked once; what it tells as passing may be asked again. */
import assert from 'node:assert/strict';
import OpenAI, { APIError } from 'openai';
import { type Test, t, test } from 'tap';
import { toApiError } from '../../../src/callers/bridge/api-error.ts';
import { serviceError } from '../../../src/callers/client/service-error.ts';
import { statusOf } from '../../../src/http/structured-error.ts';
import { HELLO, openBridge } from '../../support/bridge.ts';
import { startCardGateway } from '../../support/client.ts';
import { body, empty, fastApiError, garbage, html, type Mode, mp3, openAiError } from '../../support/stub-upstream.ts';
import { until } from '../../support/until.ts';

const ORDER = { model: 'tts-1', voice: 'alloy', input: HELLO } as const;
const gateway = await startCardGateway(t);

/** A bridge, and what its client has sent to buy speech. */
async function scene(t: Test, { isDurable, maxRetries }: { isDurable: boolean; maxRetries: number }) {
  const sent: string[] = [];
  const send: typeof fetch = (input, init) => {
    const request = input instanceof Request ? input : new Request(input, init);
    if (request.method === 'POST') sent.push(request.url);
    return fetch(request);
  };
  const opened = await openBridge(t, {
    ...{ gateway, bridge: { isDurable }, client: { fetch: send, timeoutMs: 10_000 } },
  });
  const openai = new OpenAI({ baseURL: opened.bridge.url, apiKey: 'anything', maxRetries });
  const refusal = async () => {
    const error = await openai.audio.speech.create(ORDER).catch((thrown) => thrown);
    assert.ok(error instanceof APIError, String(error));
    return error;
  };
  return { ...opened, sent, refusal };
}

const LASTING: Readonly<Record<string, Mode>> = {
  ...Object.fromEntries([400, 401, 403, 404, 413].map((status) => [`status ${status}`, openAiError(status)])),
  'a validation error': fastApiError(),
  'a page instead of audio': html(),
  'an empty body': empty(),
  'bytes that are no audio': garbage(),
  'a tag without a frame': body(Buffer.from('ID3\x04\0\0\0\0\0\0', 'latin1')),
};

for (const isDurable of [false, true]) {
  test(`a permanent upstream refusal is not retried: ${isDurable ? 'jobs' : 'streamed'}`, async (t) => {
    const { upstream, sent, refusal, calls, balance } = await scene(t, { isDurable, maxRetries: 2 });
    for (const [name, mode] of Object.entries(LASTING)) {
      upstream.mode = mode;
      const before = { sent: sent.length, calls: calls.length };
      const error = await refusal();
      t.strictSame([error.status, error.code], [422, 'TTS_UPSTREAM_ERROR'], name);
      t.equal(error.headers?.get('x-should-retry'), 'false', name);
      t.equal(error.headers?.get('x-speechgate-charged-usd'), '0.000000', name);
      t.notMatch(error.message, /You were charged/, name);
      t.match(error.message, /were not charged/, name);
      t.strictSame([sent.length - before.sent, calls.length - before.calls], [1, 1], name);
    }
    await until(async () => (await balance()) === 1_000_000n);
  });
}

test('a transient upstream failure is an uncharged 503 that may be retried', async (t) => {
  const { upstream, refusal, calls, balance } = await scene(t, { isDurable: false, maxRetries: 1 });
  upstream.mode = openAiError(500);
  const error = await refusal();
  t.strictSame([error.status, error.headers?.get('x-should-retry')], [503, null]);
  t.match(error.headers?.get('retry-after') ?? '', /^\d+$/);
  t.equal(calls.length, 2);
  await until(async () => (await balance()) === 1_000_000n);
});

/** Codes that may be answered otherwise in a while; 402 and 429 have statuses of their own. */
const PASSING = ['TTS_UPSTREAM_ERROR', 'PAYMENT_ERROR', 'TTS_UNAVAILABLE', 'REPLAY_CACHE_UNAVAILABLE'];

test('each gateway error code is either transient or not retried', async (t) => {
  for (const [code, status] of Object.entries(statusOf)) {
    if (status === 402 || status === 429) continue;
    for (const transient of [undefined, true, false]) {
      const details = transient === undefined ? null : { transient };
      const fault = { status, code, message: 'No.', details, traceId: '', retryAfterSeconds: null };
      const { status: told, headers } = toApiError(serviceError(fault), false);
      const isPassing = PASSING.includes(code) && transient !== false;
      t.equal(headers['retry-after'] !== undefined, isPassing, `${code} ${transient}`);
      const isAskedAgain = ![400, 413, 415].includes(told) && headers['x-should-retry'] !== 'false';
      t.equal(isAskedAgain, isPassing, `${code} ${transient}: ${told}`);
    }
  }
});

test('Retry-After is passed on as at most 30, and a longer one is not retried', async (t) => {
  for (const [retryAfterSeconds, header, shouldRetry] of [
    [null, '5', undefined],
    [30, '30', undefined],
    [31, '30', 'false'],
    [3_600, '30', 'false'],
  ] as const) {
    const fault = { status: 429, code: 'RATE_LIMITED', message: 'No.', details: null, traceId: '', retryAfterSeconds };
    const { status, message, headers } = toApiError(serviceError(fault), false);
    t.strictSame([status, headers['retry-after'], headers['x-should-retry']], [429, header, shouldRetry]);
    t.match(message, new RegExp(`Retry in ${retryAfterSeconds ?? 5} s\\. You were not charged\\.`));
  }
});

test('without ffmpeg only the formats that need it are refused, before a purchase', async (t) => {
  const { bridge, calls, upstream } = await openBridge(t, { gateway });
  const asked = upstream.requests.length;
  upstream.mode = mp3();
  const openai = new OpenAI({ baseURL: bridge.url, apiKey: 'anything' });
  const { PATH } = process.env;
  process.env.PATH = '';
  t.teardown(() => (process.env.PATH = PATH));
  for (const response_format of ['flac', 'opus', 'aac'] as const) {
    const error = await openai.audio.speech.create({ ...ORDER, response_format }).catch((thrown) => thrown);
    t.strictSame([error.status, error.code, error.param], [400, 'format_not_available', 'response_format']);
    t.match(error.message, /needs ffmpeg.*Nothing was bought/);
  }
  t.equal(upstream.requests.length, asked);
  for (const response_format of ['mp3', 'wav', 'pcm'] as const) {
    await openai.audio.speech.create({ ...ORDER, response_format });
    t.equal(calls.at(-1)?.end, 'spoken');
  }
});
