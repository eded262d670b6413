import type { AudioStore } from '../audio/store.ts';
import type { Database } from '../db/database.ts';
import { expireAudio } from '../jobs/expire.ts';
import type { Reconciler } from './reconciler.ts';

/** Deletes the audio of jobs whose retention has passed. Counts jobs. */
export function expiredAudio(db: Database, store: AudioStore): Reconciler {
  return {
    name: 'expired_audio',
    everyTurns: 4,
    run: async ({ done }) => done(await expireAudio(db, store)),
  };
}
