import type { AudioStore } from '../audio/store.ts';
import type { Database } from '../db/database.ts';
import { deleteAudio, expiredJobs } from '../jobs/expire.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

const BATCH = 100;

/** Deletes the audio of jobs when its retention has passed. Counts jobs. */
export function expiredAudio(db: Database, store: AudioStore): Reconciler {
  return {
    name: 'expired_audio',
    async run({ signal, done }) {
      const failures = new Failures();
      for (let isMore = true; isMore && !signal.aborted; ) {
        const jobs = await expiredJobs(db, BATCH);
        for (const job of jobs) {
          if (signal.aborted) return;
          try {
            if (await deleteAudio(db, store, job)) done(1);
          } catch (error) {
            failures.add(error);
          }
        }
        failures.check();
        isMore = jobs.length === BATCH;
      }
    },
  };
}
