import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { startGateway } from '../support/gateway.ts';
import { runTurn } from '../support/reconcile.ts';
import { type Drip, silentMp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import { bench, CENTS, charge, FUNDED, isPending, PAID } from './streaming.ts';

const BROKEN_OFF = /aborted|ECONNRESET|socket hang up/;

const PIECE = silentMp3(120);
/** Between two pieces of audio: far less than the silence that is allowed. */
const PIECE_EVERY_MS = 100;

/** Pours pieces out without a silence while the condition holds; tells everything that was poured. */
async function pourWhile(drip: Drip, condition: () => boolean | Promise<boolean>): Promise<Buffer> {
  await drip.opened;
  const poured: Buffer[] = [];
  while (await condition()) {
    await drip.write(PIECE).catch(() => {});
    poured.push(PIECE);
    await sleep(PIECE_EVERY_MS);
  }
  return Buffer.concat(poured);
}

const forMs = (ms: number) => {
  const startedAt = performance.now();
  return () => performance.now() - startedAt < ms;
};

test('audio that flows past SPEECH_TIMEOUT_MS is delivered whole, and paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = speak();
  const poured = await pourWhile(drip, forMs(6000));
  drip.end();
  assert.deepEqual((await reply).bytes, poured);
  assert.equal(await gateway.balance(account), PAID);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a silence of SPEECH_TIMEOUT_MS within the audio breaks it off, and nothing is paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = assert.rejects(speak(), BROKEN_OFF);
  await drip.opened;
  await drip.write(PIECE);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('audio that does not begin within SPEECH_TIMEOUT_MS is 503, and nothing is paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, { SPEECH_TIMEOUT_MS: '400' });
  const reply = await speak();
  await drip.opened;
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
  assert.equal(await gateway.balance(account), FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('an upstream that drips for ever is broken off at the total bound, and nothing is paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { totalMs: 4000 });
  let isOver = false;
  const reply = assert.rejects(speak(), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, () => !isOver);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('while audio flows the lease of its hold is renewed: reconcilers leave the hold alone', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { leaseSeconds: 6 });
  const reply = speak();
  await drip.opened;
  const placed = await charge(gateway);
  let isRenewed = false;
  const poured = await pourWhile(drip, async () => {
    await runTurn(gateway, 'expired_holds');
    const { state, lease_until } = await charge(gateway);
    assert.equal(state, 'pending');
    const past = (placed.lease_until as Date).getTime() + 500;
    isRenewed = (lease_until as Date).getTime() > past && Date.now() > past;
    return !isRenewed;
  });
  drip.end();
  assert.deepEqual((await reply).bytes, poured);
  assert.equal(await gateway.balance(account), PAID);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a plain request renews nothing', async (t) => {
  const { gateway, drip, speak } = await bench(t);
  const reply = speak();
  await drip.opened;
  const placed = await charge(gateway);
  await drip.write(PIECE);
  drip.end();
  assert.equal((await reply).status, 200);
  const { state, lease_until } = await charge(gateway);
  assert.deepEqual([state, lease_until], ['posted', placed.lease_until]);
});

test('a hold that was lost while its audio flows breaks the stream off before its end, and is not paid', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { leaseSeconds: 3 });
  let isOver = false;
  const reply = assert.rejects(speak(), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, forMs(300));
  await gateway.db
    .updateTable('transfer')
    .set({ lease_until: new Date(0) })
    .where('state', '=', 'pending')
    .execute();
  assert.deepEqual(await runTurn(gateway, 'expired_holds').then(({ name }) => name), 'expired_holds');
  assert.equal(await gateway.balance(account), FUNDED);
  await pourWhile(drip, () => !isOver);
  await reply;
  assert.equal(await gateway.balance(account), FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a lease that can not be renewed, as the database is away, breaks the stream off before it has passed', async (t) => {
  const outside = await startGateway(t);
  const proxy = await startTcpProxy(t, outside.databaseUrl);
  const { drip, upstream, gateway } = await bench(t, {}, { leaseSeconds: 6, databaseUrl: proxy.url });
  const account = await outside.fund(CENTS);
  let isOver = false;
  const headers = { 'x-credit-account': account };
  const reply = assert.rejects(gateway.call('/tts?text=Hello+world', { headers }), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, forMs(300));
  proxy.freeze();
  await pourWhile(drip, () => !isOver);
  await reply;
  assert.equal(await upstream.requests[0]?.closed, 'aborted');
  assert.equal(await isPending(outside), true, 'nobody could have voided it meanwhile');
  proxy.restore();
  await until(async () => {
    await runTurn(outside, 'expired_holds');
    return (await outside.balance(account)) === FUNDED;
  });
  assert.deepEqual(await audit(outside.db), []);
});

test('a stop waits for audio that flows, and for no longer than SPEECH_TIMEOUT_MS', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = assert.rejects(speak(), BROKEN_OFF);
  await drip.opened;
  await drip.write(PIECE);
  let isClosed = false;
  const closing = gateway.app.close().then(() => {
    isClosed = true;
  });
  await pourWhile(drip, () => !isClosed);
  await closing;
  await reply;
  assert.equal(await gateway.balance(account), FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});
