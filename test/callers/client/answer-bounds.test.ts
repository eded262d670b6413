/** Every answer has a bound, and ends when it is told to. */
import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gzipSync } from 'node:zlib';
import { type Test, test } from 'tap';
import { boundedResponse, maxAudioBytes } from '../../../src/callers/client/api.ts';
import {
  cardCredits,
  OutcomeUnknownError,
  type PendingPurchase,
  Speechgate,
  TooLargeError,
} from '../../../src/callers/client/index.ts';
import { errorOf, ONE_MODEL } from '../../support/client.ts';
import { serve } from '../../support/listening.ts';
import { until } from '../../support/until.ts';

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');
const HELLO = { text: 'Hello world' };
const CHUNK = Buffer.alloc(65_536);

/** A service that answers its paths so, and how many of its answers are still open. */
async function start(t: Test, paths: Readonly<Record<string, RequestListener>>) {
  const open = { count: 0 };
  const baseUrl = await serve(t, (request, response) => {
    const path = (request.url as string).split('?', 1)[0] as string;
    const answer = paths[path];
    if (answer) {
      open.count += 1;
      response.on('close', () => (open.count -= 1));
      return answer(request, response);
    }
    response.setHeader('content-type', 'application/json');
    response.writeHead(path === '/tts/models' ? 200 : 404).end(JSON.stringify(path === '/tts/models' ? ONE_MODEL : {}));
  });
  return { baseUrl, open };
}

/** Audio without end, as fast as it is read. */
const endless: RequestListener = (_request, response) => {
  response.setHeader('content-type', 'audio/mpeg');
  const send = () => {
    while (!response.destroyed && response.write(CHUNK));
  };
  response.on('drain', send);
  send();
};

/** The beginning of audio, and nothing more. */
const stuck: RequestListener = (_request, response) => {
  response.setHeader('content-type', 'audio/mpeg');
  response.write(CHUNK);
};

const silent: RequestListener = () => {};

const pendingOf = (baseUrl: string, flow: PendingPurchase['flow']): PendingPurchase => ({
  flow,
  kind: 'speech',
  identifier: 'pay_0123456789abcdef',
  baseUrl,
  method: 'POST',
  target: '/x402/tts',
  headers: { 'content-type': 'application/json', 'idempotency-key': 'a' },
  body: JSON.stringify(HELLO),
  maxMicroUsd: '198',
  expiresAt: null,
});

test('JSON responses and errors are limited to 1 MiB, after decompression', async (t) => {
  const bomb = gzipSync(Buffer.alloc(50_000_000, ' '));
  for (const [status, headers, body] of [
    [200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }, bomb],
    [400, { 'content-type': 'audio/mpeg' }, Buffer.alloc(1_048_577, ' ')],
  ] as const) {
    const answer: RequestListener = (_request, response) => response.writeHead(status, headers).end(body);
    const { baseUrl, open } = await start(t, { '/tts/models': answer });
    t.ok((await errorOf(new Speechgate({ baseUrl }).models())) instanceof TooLargeError, String(status));
    await until(() => open.count === 0);
  }
});

test('streamed audio is limited by the length of its text', async (t) => {
  const { baseUrl, open } = await start(t, { '/tts': endless });
  const speech = await new Speechgate({ baseUrl, pay: cardCredits('a') }).speak(HELLO);
  let bytes = 0;
  const error = await errorOf(
    (async () => {
      for await (const chunk of speech.audio) bytes += chunk.length;
    })(),
  );
  t.ok(error.cause instanceof TooLargeError, String(error.cause));
  t.ok(bytes > 0 && bytes <= maxAudioBytes(JSON.stringify({ ...HELLO, model: 'a' }).length), String(bytes));
  await until(() => open.count === 0);
});

/** A refusal whose details link to audio that was charged. */
const linked: RequestListener = ({ headers }, response) => {
  const audio = `http://${headers.host}/tts/jobs/a/audio?sig=a`;
  const details = { audio, payment: { state: 'charged', amountMicroUsd: 198 } };
  const error = { code: 'PREPAID_NONCE_REPLAYED', message: 'no', details };
  response.writeHead(409, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
};

test('audio of a wallet, also behind a link, is limited by the length of its text', async (t) => {
  for (const [flow, speech] of [
    ['direct', endless],
    ['prepaid', endless],
    ['prepaid', linked],
  ] as const) {
    const { baseUrl, open } = await start(t, { '/x402/tts': speech, '/tts/jobs/a/audio': endless });
    const error = await errorOf(new Speechgate({ baseUrl, timeoutMs: 0 }).resume(pendingOf(baseUrl, flow)));
    t.ok(error instanceof OutcomeUnknownError && error.cause instanceof TooLargeError, `${flow}: ${error.cause}`);
    await until(() => open.count === 0);
  }
});

test('audio that takes longer than an hour is aborted', async (t) => {
  let now = 0;
  t.intercept(performance, 'now', { value: () => now });
  let send: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({ start: (controller) => (send = controller) });
  const reader = boundedResponse(new Response(body), 1_000_000, undefined).body?.getReader();
  send?.enqueue(CHUNK);
  t.equal((await reader?.read())?.value?.length, CHUNK.length);
  now = 3_600_001;
  send?.enqueue(CHUNK);
  await assert.rejects(async () => reader?.read(), TooLargeError);
});

test('an abort signal survives garbage collection, before and within a response', async (t) => {
  for (const answer of [stuck, silent]) {
    const { baseUrl, open } = await start(t, { '/tts': answer });
    const client = new Speechgate({ baseUrl, pay: cardCredits('a') });
    const caller = new AbortController();
    const heard = client
      .speak(HELLO, { signal: caller.signal })
      .then((speech) => speech.bytes())
      .catch((error) => error);
    await until(() => open.count === 1);
    for (let turn = 0; turn < 5; turn += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      collectGarbage();
    }
    caller.abort();
    t.ok((await heard) instanceof Error);
    await until(() => open.count === 0);
  }
});
