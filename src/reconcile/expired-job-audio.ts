import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { deleteAudio, expiredJobs } from '../jobs/expired-audio.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

/** Once in a minute at the default interval. */
const EVERY_TURNS = 4;
const BATCH = 100;

/** Deletes the audio of jobs when its retention has passed, as `jobs/expired-audio.ts` tells. Counts jobs. */
export function expiredJobAudio(db: Database, store: AudioStore): Reconciler {
  return {
    name: 'expired_audio',
    everyTurns: EVERY_TURNS,
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
