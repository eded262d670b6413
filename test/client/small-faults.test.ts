import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { t, test } from 'tap';
import { AudioLostError, cardCredits, type PendingPurchase, Speechgate } from '../../src/client/index.ts';
import { errorOf, prepaidCaller } from '../support/client.ts';
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
    const details = { reason: 'replay_window_over' };
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
