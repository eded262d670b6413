import type { Database } from '../db/database.ts';
import { LEASE_SECONDS } from '../db/lease.ts';
import { pruneFeedback, requeueLostMail } from '../feedback/outbox.ts';
import { requeueLostJobs, takeOverJobs } from '../jobs/take-over.ts';
import { advanceWaiting } from '../jobs/turn.ts';
import { voidExpiredHolds } from '../ledger/hold.ts';
import { testPoint } from '../lib/test-point.ts';
import { pruneUnpaid } from '../payments/top-up/open-purchases.ts';
import type { Reconciler, Turn } from './reconciler.ts';

/** Every five minutes at the default interval. */
const PRUNING_TURNS = 20;

/**
 * Voids holds of dead processes, which restores their debits (R33). After a pause live ones have one lease to capture what
 * they delivered (R55).
 */
export const expiredHolds = (db: Database, leaseSeconds: number): Reconciler => ({
  name: 'expired_holds',
  async run(turn) {
    if (turn.steadyMs < leaseSeconds * 1000) return;
    await inBatches(turn, async () => {
      const voided = await voidExpiredHolds(db);
      testPoint('expired holds voided');
      return voided;
    });
  },
});

/** Requeues jobs of dead workers and jobs that the queue lost, and counts them. Also prevents starvation of jobs. */
export const lostJobs = (db: Database): Reconciler => ({
  name: 'lost_jobs',
  async run({ steadyMs, done }) {
    if (steadyMs < LEASE_SECONDS * 1000) return;
    done(await takeOverJobs(db));
    testPoint('jobs taken over');
    done(await requeueLostJobs(db));
    testPoint('lost jobs entered');
    await advanceWaiting(db);
  },
});

/** Requeues feedback whose mail the queue has lost, or a dead process had taken. Counts feedback. */
export const lostMail = (db: Database): Reconciler => ({
  name: 'lost_mail',
  run: async ({ done }) => done(await requeueLostMail(db)),
});

export const unpaidPurchases = (db: Database): Reconciler => ({
  name: 'unpaid_purchases',
  everyTurns: PRUNING_TURNS,
  run: (turn) => inBatches(turn, () => pruneUnpaid(db)),
});

export const oldFeedback = (db: Database, retentionDays: number): Reconciler => ({
  name: 'old_feedback',
  everyTurns: PRUNING_TURNS,
  run: (turn) => inBatches(turn, () => pruneFeedback(db, retentionDays)),
});

async function inBatches({ signal, done }: Turn, batch: () => Promise<number>): Promise<void> {
  let count: number;
  do {
    count = await batch();
    done(count);
  } while (count > 0 && !signal.aborted);
}
