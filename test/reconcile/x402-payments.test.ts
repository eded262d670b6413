import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { openAudioStore } from '../../src/audio/open-store.ts';
import { audit } from '../../src/ledger/audit.ts';
import { refused } from '../../src/sandbox/facilitator/faults.ts';
import { paymentAudioKey } from '../../src/x402/payment-audio.ts';
import { testChain, wallet } from '../support/chain.ts';
import { payUnknown } from '../support/deposit.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { unguarded } from '../support/unguarded.ts';
import {
  challengeOf,
  HELLO,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();

const stateOf = async ({ db }: X402Gateway) =>
  (await db.selectFrom('x402_payment').select('state').executeTakeFirst())?.state;

const OURS = ['abandoned_payments', 'doubtful_payments', 'payment_audio'];

/** What the reconcilers of payments did in one turn; those that did nothing are left out. */
async function turn({ app }: X402Gateway) {
  const results = (await app.reconcilers.turn()).filter(({ name }) => OURS.includes(name));
  const acted = results.filter(({ outcome, count }) => outcome === 'failed' || count > 0);
  return Object.fromEntries(acted.map(({ name, outcome, count }) => [name, outcome === 'failed' ? outcome : count]));
}

async function isStored(gateway: X402Gateway): Promise<boolean> {
  const { id, fence } = await gateway.db.selectFrom('x402_payment').select(['id', 'fence']).executeTakeFirstOrThrow();
  const store = openAudioStore(gateway.config.jobs.audioStore);
  const stored = await store.open(paymentAudioKey({ id, fence })).finally(() => store.close());
  stored?.stream.destroy();
  return stored !== undefined;
}

test('R25: a payment whose answer was lost is settled without its client', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, PRICE);
  const { paid } = await payUnknown(gateway, chain, () => payFor(gateway, payer));
  assert.deepEqual(await turn(gateway), { doubtful_payments: 1 });
  assert.equal(await stateOf(gateway), 'settled');
  assert.deepEqual(await turn(gateway), {});
  assert.deepEqual(await audit(gateway.db), []);
  assert.equal((await gateway.call('/x402/tts', paid)).headers.get('x-idempotent-replay'), 'true');
});

test('R45: a payment that a dead process was settling is unknown, and the chain tells', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, PRICE);
  await payUnknown(gateway, chain, () => payFor(gateway, payer));
  const asIf = (lease: string) =>
    sql`update x402_payment set state = 'settling', lease_until = ${sql.raw(lease)}`.execute(gateway.db);
  await asIf(`now() + interval '5 seconds'`);
  assert.deepEqual(await turn(gateway), {});
  assert.equal(await stateOf(gateway), 'settling');
  await asIf(`now() - interval '1 second'`);
  assert.deepEqual(await turn(gateway), { doubtful_payments: 1 });
  assert.equal(await stateOf(gateway), 'settled');
});

test('R26: the reservation of a dead process is freed with its audio, for any payment', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { reply } = await payFor(gateway, await wallet(chain.client, PRICE));
  assert.equal(reply.status, 200);
  // Back to before its settlement, whose process died then.
  await unguarded(gateway.db, async (db) => {
    await sql`delete from transfer`.execute(db);
    await sql`
      update x402_payment set state = 'reserved', settling_at = null, settled_at = null, transaction_hash = null,
        log_index = null, receipt = null, lease_until = now() - interval '1 hour'`.execute(db);
  });
  const findings = await audit(gateway.db);
  assert.deepEqual(
    findings.map(({ rule }) => rule),
    ['a payment under way is within its lease'],
  );
  assert.equal(await isStored(gateway), true);
  const { id, fence } = await gateway.db.selectFrom('x402_payment').select(['id', 'fence']).executeTakeFirstOrThrow();
  assert.deepEqual(await turn(gateway), { abandoned_payments: 1 });
  assert.equal(await stateOf(gateway), undefined);
  const store = openAudioStore(gateway.config.jobs.audioStore);
  assert.equal(await store.open(paymentAudioKey({ id, fence })), undefined);
  await store.close();
});

test('a refused settlement is watched; it fails once its time is over, and keeps its audio for the last look', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  gateway.facilitator.faults.settle(refused('insufficient_funds'));
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
  assert.equal(reply.status, 402);
  assert.deepEqual(await turn(gateway), {});
  assert.equal(await stateOf(gateway), 'refused');
  // As if its authorization had ended long ago, instead of leading the chain's clock away.
  await unguarded(gateway.db, (db) => sql`update x402_payment set valid_before = 1`.execute(db));
  await chain.client.mine({ blocks: 3 });
  assert.equal((await turn(gateway)).doubtful_payments, 1);
  assert.equal(await stateOf(gateway), 'failed');
  const { body: metrics } = await gateway.app.admin.inject({ url: '/metrics' });
  assert.match(metrics, /^speechgate_payments_total\{flow="direct",event="failed"\} 1$/m);
  await turn(gateway);
  assert.equal(await isStored(gateway), true);
  const again = await gateway.call('/x402/tts', paid);
  assert.deepEqual([again.status, again.json.error.details.error], [402, 'insufficient_funds']);
  await unguarded(gateway.db, (db) =>
    sql`update x402_payment set failed_at = now() - interval '86401 seconds', next_look_at = now()`.execute(db),
  );
  await turn(gateway);
  await turn(gateway);
  assert.equal(await isStored(gateway), false);
  assert.deepEqual(await audit(gateway.db), []);
});

test('after the replay window the audio is deleted, and the payment buys nothing any more', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const { paid, payload } = await payFor(gateway, payer);
  assert.deepEqual(await turn(gateway), {});
  await unguarded(gateway.db, (db) =>
    sql`update x402_payment set settled_at = now() - interval '86401 seconds'`.execute(db),
  );
  assert.deepEqual(await turn(gateway), { payment_audio: 1 });
  assert.equal(await isStored(gateway), false);
  const fresh = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  for (const call of [paid, withPayment(HELLO, { ...fresh, payload: payload.payload })]) {
    assert.equal((await gateway.call('/x402/tts', call)).json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT');
  }
  assert.deepEqual(await turn(gateway), {});
  assert.deepEqual(await audit(gateway.db), []);
});

test('R25: without its node a turn fails and changes nothing; the next one settles', { skip }, async (t) => {
  const node = await startTcpProxy(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url });
  const payer = await wallet(chain.client, PRICE);
  await payUnknown(gateway, chain, () => payFor(gateway, payer));
  node.cut();
  assert.deepEqual(await turn(gateway), { doubtful_payments: 'failed' });
  assert.equal(await stateOf(gateway), 'unknown');
  node.restore();
  assert.deepEqual(await turn(gateway), { doubtful_payments: 1 });
});
