import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { inspect } from 'node:util';
import { t, test } from 'tap';
import {
  AudioLostError,
  cardCredits,
  OutcomeUnknownError,
  type PendingPurchase,
  Speechgate,
  UnreachableError,
} from '../../src/client/index.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { errorOf, prepaidCaller, recordingBudget } from '../support/client.ts';
import { startLyingServer } from '../support/lying-server.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';
import { silentMp3 } from '../support/silent-audio.ts';

const HELLO = { text: 'Hello world' };
const AUDIO = new Uint8Array(silentMp3(1000));
const lying = await startLyingServer(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: lying.url }, { worker: true });
lying.target = gateway.url;

test('nothing stays behind on a signal that outlives its purchases', async () => {
  const { signal } = new AbortController();
  const { client } = await prepaidCaller(gateway);
  await client.speak(HELLO, { signal });
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('a direct payment that is resumed after a day was charged, and its audio is gone', async () => {
  const pending: PendingPurchase = {
    flow: 'direct',
    kind: 'speech',
    identifier: 'pay_of_last_week',
    baseUrl: lying.url,
    method: 'POST',
    target: '/x402/tts',
    headers: { 'content-type': 'application/json', 'payment-signature': 'e30=' },
    body: JSON.stringify(HELLO),
    maxMicroUsd: '198',
    expiresAt: 1,
  };
  lying.lie = (truth, path) => {
    if (path !== '/x402/tts') return;
    const details = { reason: 'replay_window_over', payment: { state: 'charged', amountMicroUsd: 198 } };
    Object.assign(truth, {
      status: 409,
      json: { error: { code: 'PAYMENT_IDENTIFIER_CONFLICT', message: 'no', details } },
    });
  };
  const client = new Speechgate({ baseUrl: lying.url, patienceMs: 0 });
  const lost = await errorOf(client.resume(pending));
  assert.ok(lost instanceof AudioLostError, String(lost));
  assert.equal(lost.chargedMicroUsd, 198n);
  assert.deepEqual(await client.conclude(pending), { chargedMicroUsd: 198n, speech: null });
  lying.lie = undefined;
});

test('the audio of a job comes by another name of the service too', async () => {
  const account = await gateway.fund(500);
  const baseUrl = lying.url.replace('127.0.0.1', 'localhost');
  const client = new Speechgate({ baseUrl, pay: cardCredits(account), patienceMs: 2000 });
  assert.deepEqual(await (await client.speak(HELLO, { durable: true })).bytes(), AUDIO);
});

test('what is printed of an unknown end names neither the text nor what pays', async () => {
  const { client } = await prepaidCaller(gateway, { patienceMs: 0 });
  lying.lie = (truth, path) => {
    if (path === '/x402/tts') Object.assign(truth, { status: 502, json: 'a proxy' });
  };
  const error = await errorOf(client.speak(HELLO));
  lying.lie = undefined;
  assert.ok(error instanceof OutcomeUnknownError, String(error));
  assert.equal(error.pending.maxMicroUsd, '198');
  assert.ok(!inspect(error).includes('x-x402-signature'));
});

test('a card request whose connection never opened, or that can not be built, was not charged', async () => {
  const account = await gateway.fund(500);
  const { budget, told } = recordingBudget();
  const closed = `http://127.0.0.1:${await freePort(undefined)}/tts`;
  const away: typeof fetch = (request, init) => {
    const { url } = request as Request;
    return fetch(url.endsWith('/tts') ? new Request(closed, request as Request) : request, init);
  };
  const client = new Speechgate({ baseUrl: lying.url, pay: cardCredits(account), budget, fetch: away });
  assert.ok((await errorOf(client.speak(HELLO))) instanceof UnreachableError);
  assert.equal(told.at(-1), 'settle 0');

  const wrong = new Speechgate({ baseUrl: lying.url, pay: cardCredits('a\nb'), budget });
  told.length = 0;
  assert.match((await errorOf(wrong.speak(HELLO))).message, /can not be sent/);
  assert.deepEqual(told, []);
});
