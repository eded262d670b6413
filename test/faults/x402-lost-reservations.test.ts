import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { testDatabase } from '../support/database.ts';
import { DEPOSIT, DEPOSIT_PATH, depositOf, mineSteadily } from '../support/deposit.ts';
import { type FaultSource, invalid, type VerifyFault } from '../support/facilitator-faults.ts';
import type { Call, Reply } from '../support/gateway.ts';
import { ControlledStream, mp3, silentMp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
  HELLO,
  PRICE,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();
const TTS = '/x402/tts';
const GET = `${TTS}?text=Hello%20world`;

/** How another request gets the payment of one that still runs. */
const TAKEN: Readonly<Record<string, (gateway: X402Gateway) => Promise<unknown>>> = {
  'a failover lost the row': ({ db }) => unguarded(db, (trx) => sql`delete from x402_payment`.execute(trx)),
  'the lease expired': ({ db }) => sql`update x402_payment set lease_until = now() - interval '1 second'`.execute(db),
};

/** Verifications that wait to be answered, in the order of arrival. */
function heldVerifies() {
  const answers: ((fault: VerifyFault | undefined) => void)[] = [];
  const faults: FaultSource = {
    nextVerify: () => new Promise((resolve) => answers.push(resolve)),
    nextSettle: () => undefined,
  };
  return {
    faults,
    arrived: (count: number) => until(() => answers.length === count),
    answer: (call: number, fault?: VerifyFault) => answers[call - 1]?.(fault),
  };
}

function assertPending({ status, json, text }: Reply, amountMicroUsd: number) {
  assert.deepEqual([status, json.error.code], [409, 'PAYMENT_REPLAY_PENDING'], text);
  assert.deepEqual(json.error.details.payment, { state: 'unknown', amountMicroUsd });
  assert.doesNotMatch(json.error.message, /not charged\./);
}

const VERIFIED: readonly [request: string, path: string, call: Call, amountMicroUsd: number][] = [
  ['speech', TTS, HELLO, Number(PRICE)],
  ['deposit', DEPOSIT_PATH, depositOf(DEPOSIT), DEPOSIT],
];

const signed = async (gateway: X402Gateway, path: string, call: Call, amount: bigint) => {
  const payer = await wallet(chain.client, amount);
  return { payer, paid: withPayment(call, await sign(payer, await challengeOf(gateway, path, call))) };
};

for (const [reason, take] of Object.entries(TAKEN)) {
  for (const [method, path, call] of [
    ['POST', TTS, HELLO],
    ['GET', GET, {}],
  ] as const) {
    test(`R64: ${method}: ${reason}: a failure is pending while repeated`, { skip }, async (t) => {
      const gateway = await startX402Gateway(t, chain);
      const { payer, paid } = await signed(gateway, path, call, PRICE);
      const [failing, speaking] = [new ControlledStream(), new ControlledStream()];
      gateway.upstream.mode = failing.mode;
      const first = gateway.call(path, paid);
      await failing.opened;
      await take(gateway);
      gateway.upstream.mode = speaking.mode;
      const second = gateway.call(path, paid);
      await speaking.opened;
      failing.reset();
      assertPending(await first, Number(PRICE));
      await speaking.write(silentMp3(500));
      speaking.end();
      t.equal((await second).status, 200);
      const again = await gateway.call(path, paid);
      t.strictSame([again.status, again.headers.get('x-idempotent-replay')], [200, 'true']);
      t.equal(await timesPaid(chain, payer), 1);
      t.strictSame(await audit(gateway.db), []);
    });
  }

  for (const [request, path, call, amountMicroUsd] of VERIFIED) {
    test(`R64: ${request}: ${reason}: a refusal is pending while repeated`, { skip }, async (t) => {
      const verifies = heldVerifies();
      const gateway = await startX402Gateway(t, chain, {}, { facilitator: { faults: verifies.faults } });
      const { payer, paid } = await signed(gateway, path, call, BigInt(amountMicroUsd));
      const first = gateway.call(path, paid);
      await verifies.arrived(1);
      await take(gateway);
      const second = gateway.call(path, paid);
      await verifies.arrived(2);
      verifies.answer(1, invalid('invalid_exact_evm_transaction_simulation_failed'));
      assertPending(await first, amountMicroUsd);
      mineSteadily(t, chain);
      verifies.answer(2);
      t.equal((await second).status, 200);
      t.equal(await timesPaid(chain, payer), 1);
      t.strictSame(await audit(gateway.db), []);
    });
  }
}

test('R64: failed speech is pending while the database is unavailable', { skip }, async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const gateway = await startX402Gateway(t, chain, {}, { databaseUrl: proxy.url });
  const { payer, paid } = await signed(gateway, TTS, HELLO, PRICE);
  const failing = new ControlledStream();
  gateway.upstream.mode = failing.mode;
  const first = gateway.call(TTS, paid);
  await failing.opened;
  proxy.cut();
  failing.reset();
  assertPending(await first, Number(PRICE));
  proxy.restore();
  await sql`update x402_payment set lease_until = now() - interval '1 second'`.execute(db);
  gateway.upstream.mode = mp3();
  await until(async () => (await gateway.call(TTS, paid)).status === 200);
  t.equal(await timesPaid(chain, payer), 1);
});
