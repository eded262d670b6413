import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { secondsFromNow } from '../../src/db/expressions.ts';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { startGateway } from '../support/gateway.ts';
import { sweepVictim } from '../support/kill.ts';
import { runTurn } from '../support/reconcile.ts';
import { type ControlledStream, silentMp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import { bench, CENTS, charge, FUNDED, PAID } from './streaming.ts';

const BROKEN_OFF = /aborted|ECONNRESET|socket hang up/;

const PIECE = silentMp3(120);
/** Between two pieces of audio: far less than the silence that is allowed. */
const PIECE_EVERY_MS = 50;
/** Renewed after a third of it, and given up after two thirds. */
const LEASE_SECONDS = 6;

/** Pours pieces out without a silence while the condition holds; tells everything that was poured. */
async function pourWhile(drip: ControlledStream, condition: () => boolean | Promise<boolean>): Promise<Buffer> {
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

test('audio that streams for longer than SPEECH_TIMEOUT_MS is delivered and charged', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = speak();
  const poured = await pourWhile(drip, forMs(2500));
  drip.end();
  assert.deepEqual((await reply).bytes, poured);
  assert.equal(await gateway.balance(account), PAID);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a stream silent for SPEECH_TIMEOUT_MS is aborted and not charged', async (t) => {
  const { gateway, account, drip, speak } = await bench(t);
  const reply = assert.rejects(speak(), BROKEN_OFF);
  await drip.opened;
  await drip.write(PIECE);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('audio that does not start within SPEECH_TIMEOUT_MS is 503 and not charged', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, { SPEECH_TIMEOUT_MS: '400' });
  const reply = await speak();
  await drip.opened;
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
  assert.equal(await gateway.balance(account), FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a stream that never ends is aborted at the total timeout and not charged', async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { totalMs: 2000 });
  let isOver = false;
  const reply = assert.rejects(speak(), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await pourWhile(drip, () => !isOver);
  await reply;
  await until(async () => (await gateway.balance(account)) === FUNDED);
  assert.deepEqual(await audit(gateway.db), []);
});

test("the hold's lease is renewed while audio streams", async (t) => {
  const { gateway, account, drip, speak } = await bench(t, {}, { leaseSeconds: LEASE_SECONDS });
  const reply = speak();
  await drip.opened;
  const placed = await charge(gateway);
  // Renewals begin in the second third of the lease.
  const poured = await pourWhile(drip, async () => {
    const { state, lease_until } = await charge(gateway);
    assert.equal(state, 'pending');
    return (lease_until as Date).getTime() === (placed.lease_until as Date).getTime();
  });
  drip.end();
  assert.deepEqual((await reply).bytes, poured);
  await booksClosed(gateway.db);
  assert.equal(await gateway.balance(account), PAID);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a stream is aborted before a lease that cannot be renewed ends', async (t) => {
  const outside = await startGateway(t);
  const proxy = await startTcpProxy(t, outside.databaseUrl);
  const options = { databaseUrl: proxy.url, leaseSeconds: LEASE_SECONDS };
  const { drip, upstream, gateway } = await bench(t, {}, options);
  const account = await outside.fund(CENTS);
  let isOver = false;
  const headers = { 'x-credit-account': account };
  const reply = assert.rejects(gateway.call('/tts?text=Hello+world', { headers }), BROKEN_OFF).then(() => {
    isOver = true;
  });
  await drip.opened;
  proxy.freeze();
  await outside.db
    .updateTable('transfer')
    .set({ lease_until: secondsFromNow(LEASE_SECONDS) })
    .where('state', '=', 'pending')
    .execute();
  await pourWhile(drip, () => !isOver);
  await reply;
  assert.equal(await upstream.requests[0]?.closed, 'aborted');
  assert.equal((await runTurn(outside, 'expired_holds')).count, 0, 'nobody could have voided it meanwhile');
  proxy.restore();
  await sweepVictim(outside);
  assert.equal(await outside.balance(account), FUNDED);
  assert.deepEqual(await audit(outside.db), []);
});

test('shutdown waits for a stream, for at most SPEECH_TIMEOUT_MS', async (t) => {
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
