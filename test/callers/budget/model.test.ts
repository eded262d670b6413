import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { type BudgetLimits, type FileBudget, openFileBudget } from '../../../src/callers/budget/file-budget.ts';
import type { Reservation } from '../../../src/callers/client/budget.ts';
import { OverCapError } from '../../../src/callers/client/errors.ts';
import { budgetPath, pendingOf, prepaid } from './support.ts';

const HOUR_MS = 3_600_000;

interface Purchase {
  readonly day: string;
  readonly max: bigint;
  /** Undefined once its opener has closed the budget. */
  opener: number | undefined;
  readonly identifier: string;
  readonly reservation: Reservation;
  isRecorded: boolean;
  /** Undefined while it is open. */
  charged: bigint | undefined;
}

/** What a budget is, without files, locks and processes. */
class Model {
  now = Date.parse('2026-11-23T20:00:00Z');
  readonly limits: BudgetLimits[] = [];
  readonly purchases: Purchase[] = [];

  today = () => new Date(this.now).toISOString().slice(0, 10);

  used(day?: string): bigint {
    const counted = this.purchases.filter((each) => day === undefined || each.day === day);
    return counted.reduce((sum, { charged, max }) => sum + (charged ?? max), 0n);
  }

  /** The limit that is in the way of this amount. */
  refusal(opener: number, max: bigint): string | undefined {
    const { perCallMicroUsd, perDayMicroUsd, totalMicroUsd } = this.limits[opener] ?? {};
    const isOver = (limit: bigint | undefined, used: bigint) => limit !== undefined && used + max > limit;
    if (isOver(perCallMicroUsd, 0n)) return 'call';
    if (isOver(perDayMicroUsd, this.used(this.today()))) return 'day';
    return isOver(totalMicroUsd, this.used()) ? 'total' : undefined;
  }

  /** Of the openers that have the budget open. */
  living = () => this.purchases.filter(({ opener }) => opener !== undefined);

  lost = () => this.purchases.filter(({ opener, charged }) => opener === undefined && charged === undefined);
}

const amount = fc.bigInt(0n, 120n);
const limit = fc.option(fc.bigInt(0n, 900n), { nil: undefined });
const limits = fc.record({ perCallMicroUsd: limit, perDayMicroUsd: limit, totalMicroUsd: limit });
const opener = fc.nat(1);
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('reserve' as const), opener, amount }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('record' as const), which: fc.nat(), size: fc.nat(9000) }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('settle' as const), which: fc.nat(), amount }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('reopen' as const), opener, limits }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('conclude' as const), opener }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wait' as const), hours: fc.integer({ min: -5, max: 30 }) }) },
);

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

test('two openers of one file behave like a model without files', async (t) => {
  let round = 0;
  await fc.assert(
    fc.asyncProperty(limits, limits, fc.array(step, { minLength: 10, maxLength: 60 }), async (first, second, steps) => {
      const path = `${await budgetPath(t)}-${round++}`;
      const model = new Model();
      const budgets: FileBudget[] = [];
      const open = async (index: number, each: BudgetLimits) => {
        model.limits[index] = each;
        budgets[index] = await openFileBudget(path, each, () => model.now);
      };
      await open(0, first);
      await open(1, second);
      for (const each of steps) {
        await take(each, model, budgets, open);
        await assertAgree(model, budgets);
      }
      await Promise.all(budgets.map((budget) => budget.close()));
    }),
    { numRuns: 25 },
  );
});

async function take(
  step: Step,
  model: Model,
  budgets: readonly FileBudget[],
  open: (index: number, limits: BudgetLimits) => Promise<void>,
): Promise<void> {
  switch (step.do) {
    case 'reserve': {
      const { opener, amount: max } = step;
      const refusal = model.refusal(opener, max);
      const [end] = await Promise.allSettled([(budgets[opener] as FileBudget).reserve(prepaid(max))]);
      if (end.status === 'rejected') {
        assert.ok(end.reason instanceof OverCapError);
        assert.equal(end.reason.scope, refusal);
        return;
      }
      assert.equal(refusal, undefined);
      const identifier = String(model.purchases.length);
      const { value: reservation } = end;
      const day = model.today();
      model.purchases.push({ day, max, opener, identifier, reservation, isRecorded: false, charged: undefined });
      return;
    }
    case 'record': {
      const purchase = pick(
        model.living().filter(({ charged }) => charged === undefined),
        step.which,
      );
      if (!purchase) return;
      await purchase.reservation.record(
        pendingOf(purchase.identifier, { maxMicroUsd: '0', body: 'x'.repeat(step.size) }),
      );
      purchase.isRecorded = true;
      return;
    }
    case 'settle': {
      const purchase = pick(model.living(), step.which);
      if (!purchase) return;
      await purchase.reservation.settle(step.amount);
      purchase.charged ??= step.amount;
      return;
    }
    case 'reopen': {
      await (budgets[step.opener] as FileBudget).close();
      await open(step.opener, step.limits);
      for (const each of model.purchases) if (each.opener === step.opener) each.opener = undefined;
      return;
    }
    case 'conclude': {
      const lost = model.lost();
      const told = await (budgets[step.opener] as FileBudget).lost();
      assert.deepEqual(
        told.map(({ pending }) => pending?.identifier).sort(),
        lost.map(({ isRecorded, identifier }) => (isRecorded ? identifier : undefined)).sort(),
      );
      const charge = ({ identifier, max }: Pick<Purchase, 'identifier' | 'max'>) => (Number(identifier) % 2 ? max : 0n);
      await (budgets[step.opener] as FileBudget).concludeLost({
        resolveOutcome: async ({ identifier }) => ({
          chargedMicroUsd: charge(model.purchases[Number(identifier)] as Purchase),
          speech: null,
        }),
      });
      for (const each of lost) each.charged = each.isRecorded ? charge(each) : 0n;
      return;
    }
    case 'wait':
      model.now += step.hours * HOUR_MS;
  }
}

async function assertAgree(model: Model, budgets: readonly FileBudget[]): Promise<void> {
  const settled = model.purchases.filter(({ charged }) => charged !== undefined);
  const sum = (of: readonly Purchase[]) => of.reduce((total, { charged }) => total + (charged ?? 0n), 0n);
  const spentToday = sum(settled.filter(({ day }) => day === model.today()));
  for (const [index, budget] of budgets.entries()) {
    const { perDayMicroUsd, totalMicroUsd } = model.limits[index] ?? {};
    const lefts = [
      ...(perDayMicroUsd === undefined ? [] : [perDayMicroUsd - model.used(model.today())]),
      ...(totalMicroUsd === undefined ? [] : [totalMicroUsd - model.used()]),
    ];
    const least = lefts.sort((one, other) => (one < other ? -1 : 1))[0];
    assert.deepEqual(await budget.read(), {
      spentTodayMicroUsd: spentToday,
      spentMicroUsd: sum(settled),
      reservedMicroUsd: model.used() - sum(settled),
      reservedUntil: null,
      unconfirmedTodayMicroUsd: 0n,
      unconfirmedMicroUsd: 0n,
      leftMicroUsd: least === undefined ? null : least < 0n ? 0n : least,
    });
  }
}

const pick = <T>(list: readonly T[], which: number): T | undefined => list[which % list.length];
