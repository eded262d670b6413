import type { Database } from '../db/database.ts';
import { requeueLostJobs, takeOverJobs } from '../jobs/take-over.ts';
import { advanceWaiting } from '../jobs/turn.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Reconciler } from './reconciler.ts';

/** Queues again what nobody works on, and what the queue has lost, and lets no job wait for ever. Counts the former. */
export function lostJobs(db: Database): Reconciler {
  return {
    name: 'lost_jobs',
    async run({ done }) {
      done(await takeOverJobs(db));
      testPoint('jobs taken over');
      done(await requeueLostJobs(db));
      testPoint('lost jobs entered');
      await advanceWaiting(db);
    },
  };
}
