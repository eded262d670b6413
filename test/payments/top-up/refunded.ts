import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { audit } from '../../../src/ledger/audit.ts';
import { findDebt } from '../../../src/ledger/debts.ts';
import { captureHold } from '../../../src/ledger/hold.ts';
import { auditClawbacks } from '../../../src/operators/audit/processor-clawbacks.ts';
import { auditPurchases } from '../../../src/operators/audit/processor-purchases.ts';
import { Processor } from '../../../src/payments/top-up/processor.ts';
import type { TestCheckout } from '../../support/checkout.ts';
import type { Gateway } from '../../support/gateway.ts';
import { holdOnCard } from '../../support/holds.ts';
import { runTurn } from '../../support/reconcile.ts';
import { buy, shop, shownAccount } from './shop.ts';

export interface Sale {
  readonly session: string;
  readonly account: string;
}

/** Buys credit and comes back from the checkout. */
export async function sell(gateway: Gateway, checkout: TestCheckout, cents: number, accountId = ''): Promise<Sale> {
  const back = await buy(gateway, checkout, { amount: String(cents), accountId });
  const page = await gateway.call(back);
  assert.equal(page.status, 200);
  return {
    session: new URL(back, 'http://127.0.0.1').searchParams.get('session_id') ?? '',
    account: shownAccount(page.text),
  };
}

/** A gateway with a checkout, and one purchase of 500 cents. */
export async function sold(t: Test) {
  const { gateway, checkout } = await shop(t);
  return { gateway, checkout, ...(await sell(gateway, checkout, 500)) };
}

/** Charges so many micro-USD, as requests did. */
export async function spend({ db }: Gateway, account: string, amountMicroUsd: bigint): Promise<void> {
  const placed = await holdOnCard(db, account, amountMicroUsd);
  assert.ok(placed.outcome === 'placed', placed.outcome);
  assert.equal(await captureHold(db, placed.hold), true);
}

/** Reads the processor's lists, and asks for each refund and dispute that may have changed. Tells how many moved money. */
export async function followProcessor(gateway: Gateway): Promise<number> {
  let count = 0;
  for (const name of ['clawback_sweep', 'clawbacks']) {
    if (name === 'clawbacks')
      await sql`update clawback set next_check_at = now() - interval '1 second'`.execute(gateway.db);
    const result = await runTurn(gateway, name);
    assert.equal(result.outcome, 'done', String(result.error));
    count += result.count;
  }
  return count;
}

/** What is in the account, and what it owes, in cents. */
export async function stand({ balance, db }: Gateway, account: string): Promise<{ balance: number; debt: number }> {
  return { balance: Number(await balance(account)) / 10_000, debt: Number(await findDebt(db, account)) / 10_000 };
}

/** The books hold inside, and beside the processor. */
export async function assertSound({ db }: Gateway, { env }: TestCheckout): Promise<void> {
  assert.deepEqual(await audit(db), []);
  const processor = new Processor(env.STRIPE_SECRET_KEY ?? '', env.STRIPE_API_BASE);
  for (const compare of [auditPurchases, auditClawbacks]) {
    const { findings, unanswered } = await compare(db, processor, () => {});
    assert.deepEqual([findings, unanswered], [[], []]);
  }
}
