import assert from 'node:assert/strict';
import fc from 'fast-check';
import { sql } from 'kysely';
import { test } from 'tap';
import { captureHold, type HoldRecord, voidHold } from '../../src/ledger/hold.ts';
import { eachOf } from '../../src/lib/each-of.ts';
import { ApiError } from '../../src/sandbox/checkout/api-error.ts';
import { assertSound, sell, stand } from '../payments/top-up/refunded.ts';
import { shop } from '../payments/top-up/shop.ts';
import { isTakenAt, type TestCheckout } from '../support/checkout.ts';
import type { Gateway } from '../support/gateway.ts';
import { holdOnCard } from '../support/holds.ts';
import { runTurn, runWithoutTurn } from '../support/reconcile.ts';

type RefundEnd = Parameters<TestCheckout['settleRefund']>[1];
type DisputeStatus = Parameters<TestCheckout['updateDispute']>[1];

/** What happens to one account. A number between 0 and 1 chooses among what there is, or a share of it. */
type Step =
  | { readonly step: 'buy'; readonly cents: number }
  | { readonly step: 'spend'; readonly share: number; readonly end: 'capture' | 'void' | 'later' }
  | { readonly step: 'refund'; readonly of: number; readonly share: number; readonly status: 'pending' | 'succeeded' }
  | { readonly step: 'settle'; readonly of: number; readonly status: RefundEnd }
  | { readonly step: 'dispute'; readonly of: number; readonly share: number; readonly status: DisputeStatus }
  | { readonly step: 'turn'; readonly of: number; readonly status: DisputeStatus }
  | { readonly step: 'follow'; readonly reconciler: 'clawback_sweep' | 'clawbacks' | 'debts' };

// A double of fast-check is mostly next to 0.
const share = fc.integer({ min: 0, max: 999 }).map((thousandths) => thousandths / 1000);
const cents = fc.integer({ min: 500, max: 3000 });
const status = fc.constantFrom<DisputeStatus>(
  ...(['warning_needs_response', 'warning_under_review', 'warning_closed', 'prevented'] as const),
  ...(['needs_response', 'under_review', 'won', 'lost', 'needs_response', 'under_review', 'won', 'lost'] as const),
);

const anyStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ step: fc.constant('buy' as const), cents }) },
  {
    weight: 6,
    arbitrary: fc.record({
      step: fc.constant('spend' as const),
      share,
      end: fc.constantFrom('capture' as const, 'capture' as const, 'void' as const, 'later' as const),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      ...{ step: fc.constant('refund' as const), of: share, share },
      status: fc.constantFrom('pending' as const, 'succeeded' as const),
    }),
  },
  {
    // Most find nothing pending.
    weight: 5,
    arbitrary: fc.record({
      ...{ step: fc.constant('settle' as const), of: share },
      status: fc.constantFrom<RefundEnd>('succeeded', 'failed', 'canceled', 'requires_action'),
    }),
  },
  { weight: 3, arbitrary: fc.record({ step: fc.constant('dispute' as const), of: share, share, status }) },
  { weight: 4, arbitrary: fc.record({ step: fc.constant('turn' as const), of: share, status }) },
  {
    weight: 3,
    arbitrary: fc.record({
      step: fc.constant('follow' as const),
      reconciler: fc.constantFrom('clawback_sweep' as const, 'clawbacks' as const, 'debts' as const),
    }),
  },
);

/** Random lives of accounts, each of which begins with a purchase. */
const histories = (seed: number, count: number): readonly (readonly Step[])[] =>
  fc
    .sample(fc.tuple(cents, fc.array(anyStep, { minLength: 3, maxLength: 14 })), { seed, numRuns: count })
    .map(([first, more]) => [{ step: 'buy', cents: first }, ...more]);

/** Another one may be tried with more histories, of which 10,000 take about half an hour. */
const SEED = Number(process.env.CLAWBACK_SEED ?? 1234);
const HISTORIES = Number(process.env.CLAWBACK_HISTORIES ?? 60);
const BATCH = 30;
const CONCURRENCY = 8;

/** One account and what has become of it, by the tests' own count. */
class Life {
  account = '';
  boughtCents = 0;
  spentMicroUsd = 0n;
  readonly sessions: string[] = [];
  readonly refunds: string[] = [];
  readonly disputes: string[] = [];
  readonly #held: HoldRecord[] = [];
  readonly #gateway: Gateway;
  readonly #checkout: TestCheckout;

  constructor(gateway: Gateway, checkout: TestCheckout) {
    this.#gateway = gateway;
    this.#checkout = checkout;
  }

  /** Tells whether the step was one that the processor or the balance allowed. */
  async go(step: Step): Promise<boolean> {
    try {
      return await this.#step(step);
    } catch (error) {
      if (error instanceof ApiError) return false;
      throw error;
    }
  }

  /** Ends what is still held. */
  async end(): Promise<void> {
    for (const [index, hold] of this.#held.entries())
      await (index % 2 ? this.#capture(hold) : voidHold(this.#gateway.db, hold));
  }

  async #step(step: Step): Promise<boolean> {
    switch (step.step) {
      case 'buy': {
        const sale = await sell(this.#gateway, this.#checkout, step.cents, this.account);
        this.account = sale.account;
        this.sessions.push(sale.session);
        this.boughtCents += step.cents;
        return true;
      }
      case 'spend':
        return this.#spend(step);
      case 'refund': {
        const amountCents = 1 + Math.floor(step.share * 3000);
        const { id } = await this.#checkout.refund({
          session: one(this.sessions, step.of),
          amountCents,
          status: step.status,
        });
        this.refunds.push(id);
        return true;
      }
      case 'settle':
        if (this.refunds.length === 0) return false;
        await this.#checkout.settleRefund(one(this.refunds, step.of), step.status);
        return true;
      case 'dispute': {
        const amountCents = 1 + Math.floor(step.share * 3000);
        const { id } = await this.#checkout.openDispute({
          session: one(this.sessions, step.of),
          amountCents,
          status: step.status,
        });
        this.disputes.push(id);
        return true;
      }
      case 'turn':
        if (this.disputes.length === 0) return false;
        await this.#checkout.updateDispute(one(this.disputes, step.of), step.status);
        return true;
      case 'follow':
        if (step.reconciler === 'clawbacks') await makeDue(this.#gateway);
        await runWithoutTurn(this.#gateway, step.reconciler);
        return true;
    }
  }

  async #spend({ share, end }: Step & { step: 'spend' }): Promise<boolean> {
    const { db } = this.#gateway;
    const amount = 1n + BigInt(Math.floor(share * 15_000_000));
    const placed = await holdOnCard(db, this.account, amount, 600);
    if (placed.outcome !== 'placed') return false;
    if (end === 'capture') await this.#capture(placed.hold);
    else if (end === 'void') await voidHold(db, placed.hold);
    else this.#held.push(placed.hold);
    return true;
  }

  async #capture(hold: HoldRecord): Promise<void> {
    assert.equal(await captureHold(this.#gateway.db, hold), true);
    this.spentMicroUsd += hold.amountMicroUsd;
  }
}

const one = (list: readonly string[], of: number): string => list[Math.floor(of * list.length)] ?? '';

const makeDue = ({ db }: Gateway) =>
  sql`update clawback set next_check_at = now() - interval '1 second' where next_check_at is not null`.execute(db);

/** Until the ledger has everything that the processor tells. */
async function followAll(gateway: Gateway): Promise<void> {
  const sweep = await runTurn(gateway, 'clawback_sweep');
  assert.equal(sweep.outcome, 'done', String(sweep.error));
  await makeDue(gateway);
  for (;;) {
    const due = await sql`select from clawback where next_check_at < now() limit 1`.execute(gateway.db);
    if (due.rows.length === 0) break;
    const result = await runTurn(gateway, 'clawbacks');
    assert.equal(result.outcome, 'done', String(result.error));
  }
  await runTurn(gateway, 'debts');
}

test('R61: random purchases, spends, refunds and disputes match processor and callers', async (t) => {
  t.comment(`CLAWBACK_SEED=${SEED} CLAWBACK_HISTORIES=${HISTORIES}`);
  const { gateway, checkout } = await shop(t);
  const all = histories(SEED, HISTORIES);
  const did: Record<string, number> = {};
  let indebted = 0;
  for (let from = 0; from < all.length; from += BATCH) {
    const batch = all.slice(from, from + BATCH);
    const since = new Date(Math.floor(Date.now() / 1000) * 1000);
    const lives: Life[] = [];
    await eachOf(batch, CONCURRENCY, async (history) => {
      const life = new Life(gateway, checkout);
      lives.push(life);
      for (const step of history) if (await life.go(step)) did[step.step] = (did[step.step] ?? 0) + 1;
      await life.end();
    });
    await followAll(gateway);
    for (const life of lives) {
      const { balance, debt } = await stand(gateway, life.account);
      const taken = await takenCents(checkout, life);
      t.ok(balance >= 0 && debt >= 0 && (balance === 0 || debt === 0), `${balance} and ${debt}`);
      t.equal(Math.round((balance - debt) * 10_000), (life.boughtCents - taken) * 10_000 - Number(life.spentMicroUsd));
      if (debt > 0) indebted++;
    }
    // As if months had passed: the lists are read on from here, and what came before changes no more.
    await sql`update processor_list set read_until = ${since} where name <> 'sessions'`.execute(gateway.db);
    await sql`update clawback set next_check_at = null`.execute(gateway.db);
  }
  await assertSound(gateway, checkout);
  t.comment(JSON.stringify({ ...did, indebted }));
  for (const step of ['buy', 'spend', 'refund', 'settle', 'dispute', 'turn', 'follow']) {
    t.ok((did[step] ?? 0) > HISTORIES / 10, `${step} happened`);
  }
  t.ok(indebted > HISTORIES / 30);
});

/** What the processor has of this account's purchases now. */
async function takenCents({ stripe }: TestCheckout, { refunds, disputes }: Life): Promise<number> {
  const told = await Promise.all([
    ...refunds.map((id) => stripe.refunds.retrieve(id)),
    ...disputes.map((id) => stripe.disputes.retrieve(id)),
  ]);
  return told.reduce((sum, { status, amount }) => (isTakenAt(status) ? sum + amount : sum), 0);
}
