import type { Database } from '../db/database.ts';
import { requeueLostJobs, takeOverJobs } from '../jobs/take-over.ts';
import type { Reconciler } from './reconciler.ts';

/** Queues again what dead workers had claimed, and what the queue has lost. Counts jobs. */
export function lostJobs(db: Database): Reconciler {
  return {
    name: 'lost_jobs',
    async run({ done }) {
      done(await takeOverJobs(db));
      done(await requeueLostJobs(db));
    },
  };
}
