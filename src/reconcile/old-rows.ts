import type { Database } from '../db/database.ts';
import { pruneFeedback } from '../feedback/prune-feedback.ts';
import { pruneUnpaid } from '../top-up/prune-unpaid.ts';
import type { Reconciler } from './reconciler.ts';

/** Once in five minutes at the default interval. */
const EVERY_TURNS = 20;

/** Deletes purchases that came to nothing, some weeks after their session's end. Counts purchases. */
export const unpaidPurchases = (db: Database): Reconciler => inBatches('unpaid_purchases', () => pruneUnpaid(db));

/** Deletes feedback when its retention has passed. Counts feedback. */
export const oldFeedback = (db: Database, retentionDays: number): Reconciler =>
  inBatches('old_feedback', () => pruneFeedback(db, retentionDays));

/** @param prune deletes a bounded number of rows, and tells how many */
function inBatches(name: string, prune: () => Promise<number>): Reconciler {
  return {
    name,
    everyTurns: EVERY_TURNS,
    async run({ signal, done }) {
      let pruned: number;
      do {
        pruned = await prune();
        done(pruned);
      } while (pruned > 0 && !signal.aborted);
    },
  };
}
