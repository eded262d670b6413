/**
 * A process that dies within a reconciler's work on card money: the next one makes the books right, and those of the
 * processor agree.
 */
import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import { voidHold } from '../../src/ledger/hold.ts';
import { assertSound, followProcessor, sold, spend, stand } from '../payments/top-up/refunded.ts';
import { buy, form, shop } from '../payments/top-up/shop.ts';
import type { TestCheckout } from '../support/checkout.ts';
import type { Gateway } from '../support/gateway.ts';
import { holdOnCard } from '../support/holds.ts';
import { killReconciler, letLeasesEnd } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { testRunner } from '../support/reconcile.ts';

/** A purchase of 500 cents, and what is left to be done about it or beside it. */
interface Scene {
  readonly gateway: Gateway;
  readonly checkout: TestCheckout;
  /** Holds the processor's and our own books against each other once all is done. */
  settled(): Promise<void>;
}

async function hold({ db }: Gateway, account: string, cents: number) {
  const placed = await holdOnCard(db, account, BigInt(cents) * 10_000n);
  assert.ok(placed.outcome === 'placed', placed.outcome);
  return placed.hold;
}

/** A hold whose process died. */
async function expiredHold(t: Test): Promise<Scene> {
  const { gateway, checkout, account } = await sold(t);
  await hold(gateway, account, 100);
  await letLeasesEnd(gateway.db);
  return {
    ...{ gateway, checkout },
    settled: async () => assert.deepEqual(await stand(gateway, account), { balance: 500, debt: 0 }),
  };
}

/** A debtor to whom something has come back. */
async function debtor(t: Test): Promise<Scene> {
  const { gateway, checkout, account, session } = await sold(t);
  const held = await hold(gateway, account, 450);
  await checkout.refund({ session });
  await followProcessor(gateway);
  assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 450 });
  await voidHold(gateway.db, held);
  return {
    ...{ gateway, checkout },
    settled: async () => assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 0 }),
  };
}

/** A purchase that is paid, and whose buyer never came back. */
async function unseen(t: Test): Promise<Scene> {
  const { gateway, checkout } = await shop(t);
  await buy(gateway, checkout, { amount: '700' });
  return { gateway, checkout, settled: () => isCredited(gateway) };
}

/** A purchase that is not paid yet, and is later. */
async function unpaid(t: Test): Promise<Scene> {
  const { gateway, checkout } = await shop(t);
  const opened = await gateway.call('/top-up', form({ amount: '700' }));
  return {
    ...{ gateway, checkout },
    settled: async () => {
      await checkout.pay(opened.headers.get('location') ?? '');
      await turn(gateway);
      await isCredited(gateway);
    },
  };
}

async function isCredited({ db }: Gateway): Promise<void> {
  const rows = await db.selectFrom('account').select('balance_micro_usd').where('kind', '=', 'card').execute();
  assert.deepEqual(rows, [{ balance_micro_usd: 7_000_000n }]);
}

/** A purchase that was spent and then refunded, which nobody knows of yet. */
async function refunded(t: Test): Promise<Scene> {
  const { gateway, checkout, account, session } = await sold(t);
  await spend(gateway, account, 4_500_000n);
  await checkout.refund({ session });
  return {
    ...{ gateway, checkout },
    settled: async () => assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 450 }),
  };
}

/** A dispute that is booked, and that we have won since. */
async function won(t: Test): Promise<Scene> {
  const { gateway, checkout, account, session } = await sold(t);
  await checkout.openDispute({ session });
  await followProcessor(gateway);
  assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 0 });
  const [dispute] = (await checkout.stripe.disputes.list({ limit: 1 })).data;
  await checkout.updateDispute(dispute?.id ?? '', 'won');
  await isDue(gateway);
  return {
    ...{ gateway, checkout },
    settled: async () => {
      await followProcessor(gateway);
      assert.deepEqual(await stand(gateway, account), { balance: 500, debt: 0 });
    },
  };
}

const isDue = ({ db }: Gateway) =>
  db
    .updateTable('clawback')
    .set({ next_check_at: new Date(Date.now() - 60_000) })
    .execute();

/** Every reconciler of another process. */
async function turn(gateway: Gateway): Promise<void> {
  for (const { name, outcome, error } of await testRunner(gateway).turn())
    assert.equal(outcome, 'done', `${name}: ${error}`);
}

/** What is left to be done, and the reconciler that dies while it does it. */
type Case = readonly [scene: (t: Test) => Promise<Scene>, reconciler: string];

const CASES = killCases<'test/reconcile/kill.test.ts', Case>('test/reconcile/kill.test.ts', {
  'turn taken': [expiredHold, 'expired_holds'],
  'expired holds voided': [expiredHold, 'expired_holds'],
  'debtor found': [debtor, 'debts'],
  'purchase claimed': [unseen, 'top_ups'],
  'purchase unpaid': [unpaid, 'top_ups'],
  'page unread': [refunded, 'clawback_sweep'],
  'page handled': [refunded, 'clawback_sweep'],
  'clawback listed': [refunded, 'clawback_sweep'],
  'clawback written': [refunded, 'clawback_sweep'],
  'debt made': [refunded, 'clawback_sweep'],
  'clawback booked': [refunded, 'clawback_sweep'],
  'clawback claimed': [won, 'clawbacks'],
  'clawback told': [won, 'clawbacks'],
});

for (const [point, [scene, reconciler]] of CASES) {
  test(`kill -9 at "${point}": the next reconciler corrects the ledger`, async (t) => {
    const { gateway, checkout, settled } = await scene(t);
    const env = { ...checkout.env, DATABASE_URL: gateway.databaseUrl };
    await killReconciler(t, point, reconciler, env);
    for (let turns = 0; turns < 2; turns++) {
      await letLeasesEnd(gateway.db);
      await turn(gateway);
    }
    await settled();
    await assertSound(gateway, checkout);
  });
}
