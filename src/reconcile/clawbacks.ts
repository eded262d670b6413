import type { Database } from '../db/database.ts';
import { collectDebt, solventDebtors } from '../ledger/debts.ts';
import { testPoint } from '../lib/test-point.ts';
import { claimDueClawback, unknownOf } from '../top-up/clawback-rows.ts';
import type { BookedClawback, Clawbacks } from '../top-up/clawbacks.ts';
import { readTurnBegin } from '../top-up/open-purchases.ts';
import type { Processor } from '../top-up/processor.ts';
import type { ListedClawback } from '../top-up/processor-clawbacks.ts';
import { Failures } from './failures.ts';
import { runPass } from './processor-pass.ts';
import type { Reconciler, Turn } from './reconciler.ts';

/** Once in a minute at the default interval. */
const EVERY_TURNS = 4;
/** Refunds and disputes that are asked for one by one in one turn, at most. */
const MOST_CHECKS = 25;
const LISTS = [
  { name: 'refunds', kind: 'refund' },
  { name: 'disputes', kind: 'dispute' },
] as const;

/** Books the refunds and disputes that the processor's lists have and the ledger has not (R61). Counts those that moved money. */
export function clawbackSweep(db: Database, processor: Processor, clawbacks: Clawbacks): Reconciler {
  return {
    name: 'clawback_sweep',
    everyTurns: EVERY_TURNS,
    async run(turn) {
      const failures = new Failures();
      for (const { name, kind } of LISTS) {
        const read = async (createdFrom: number, after: string | undefined) => {
          const page = await processor.clawbacks.list(kind, createdFrom, after);
          return { entries: page.clawbacks, hasMore: page.hasMore };
        };
        await runPass(db, name, { read, handle: (listed) => record(listed, failures, turn) }, turn);
      }
      failures.check();
    },
  };

  /** Tells whether all of them could be recorded. */
  async function record(listed: readonly ListedClawback[], failures: Failures, turn: Turn): Promise<boolean> {
    let isComplete = true;
    // The oldest first: who reads the account's history finds it in the order in which it happened.
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

/** Asks for each refund and dispute that may still change, ever more rarely (R61). Counts those that moved money. */
export function openClawbacks(db: Database, clawbacks: Clawbacks): Reconciler {
  return {
    name: 'clawbacks',
    async run(turn) {
      const failures = new Failures();
      const { begin } = await readTurnBegin(db);
      for (let checks = 0; checks < MOST_CHECKS && !turn.signal.aborted; checks++) {
        const claimed = await claimDueClawback(db, begin);
        if (!claimed) break;
        testPoint('clawback claimed');
        try {
          tell(await clawbacks.check(claimed), turn);
        } catch (error) {
          failures.add(error);
        }
      }
      failures.check();
    },
  };
}

function tell({ hasMoved, unclear }: BookedClawback, { done, report }: Turn): void {
  if (hasMoved) done(1);
  if (unclear) report(unclear);
}

/** Pays debts from what came back to an account, as of a hold that was voided (R61). Counts accounts. */
export const debts = (db: Database): Reconciler => ({
  name: 'debts',
  async run({ done }) {
    const failures = new Failures();
    for (const id of await solventDebtors(db)) {
      testPoint('debtor found');
      try {
        await db.transaction().execute((trx) => collectDebt(trx, id));
        done(1);
      } catch (error) {
        failures.note(error);
      }
    }
    failures.check();
  },
});
