import type { Database } from '../db/database.ts';
import { collectDebt, solventDebtors } from '../ledger/debts.ts';
import { testPoint } from '../lib/test-point.ts';
import { type BookedClawback, type Clawbacks, claimDueClawback, unknownOf } from '../payments/top-up/clawbacks.ts';
import { readTurnBegin } from '../payments/top-up/open-purchases.ts';
import type { Processor } from '../payments/top-up/processor.ts';
import type { ListedClawback } from '../payments/top-up/processor-clawbacks.ts';
import { runPass } from './processor-pass.ts';
import { eachClaimed, type Failures, type Reconciler, reconciler, type Turn } from './reconciler.ts';

/** Once a minute at the default interval. */
const SWEEP_TURNS = 4;
const MOST_CHECKS = 25;

/** Books refunds and disputes of the processor's lists that the ledger lacks (R61). Counts those that moved money. */
export function clawbackSweep(db: Database, processor: Processor, clawbacks: Clawbacks): Reconciler {
  return reconciler('clawback_sweep', SWEEP_TURNS, async (turn, failures) => {
    const handle = (listed: readonly ListedClawback[]) => record(listed, failures, turn);
    for (const kind of ['refund', 'dispute'] as const) {
      const read = (createdFrom: number, after?: string) => processor.clawbacks.list(kind, createdFrom, after);
      await runPass(db, `${kind}s`, { read, handle }, turn);
    }
  });

  async function record(listed: readonly ListedClawback[], failures: Failures, turn: Turn): Promise<boolean> {
    let isComplete = true;
    // Oldest first, so that the account's history shows them in the order in which they happened.
    for (const each of (await unknownOf(db, listed)).toReversed()) {
      try {
        tell(await clawbacks.record(each), turn);
      } catch (error) {
        isComplete = false;
        failures.note(error);
      }
    }
    return isComplete;
  }
}

/** Checks each refund and dispute that may still change, ever less often (R61). Counts those that moved money. */
export const openClawbacks = (db: Database, clawbacks: Clawbacks): Reconciler =>
  reconciler('clawbacks', 1, async (turn, failures) => {
    const { begin } = await readTurnBegin(db);
    const claim = () => claimDueClawback(db, begin);
    await eachClaimed(MOST_CHECKS, turn, failures, claim, async (claimed) => {
      testPoint('clawback claimed');
      tell(await clawbacks.check(claimed), turn);
    });
  });

function tell({ hasMoved, unclear }: BookedClawback, { done, report }: Turn): void {
  if (hasMoved) done(1);
  if (unclear) report(unclear);
}

/** Pays debts from balances that have grown, for example by a voided hold (R61). Counts accounts. */
export const debts = (db: Database): Reconciler =>
  reconciler('debts', 1, async ({ done }, failures) => {
    for (const id of await solventDebtors(db)) {
      testPoint('debtor found');
      try {
        await db.transaction().execute((trx) => collectDebt(trx, id));
        done(1);
      } catch (error) {
        failures.note(error);
      }
    }
  });
