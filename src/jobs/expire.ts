import { sql } from 'kysely';
import type { AudioStore } from '../audio/store.ts';
import type { Database } from '../db/database.ts';
import { audioKey } from './job.ts';

const BATCH = 100;

/**
 * Deletes the audio of jobs whose retention has passed, that of earlier owners included, and tells how many jobs there
 * were. Several processes may do so at once: an object can be deleted twice, and is counted once.
 */
export async function expireAudio(db: Database, store: AudioStore): Promise<number> {
  let expired = 0;
  for (;;) {
    const jobs = await db
      .selectFrom('job')
      .select(['id', 'fence'])
      .where('audio_expires_at', '<=', sql<Date>`now()`)
      .where('audio_deleted', '=', false)
      .orderBy('audio_expires_at')
      .limit(BATCH)
      .execute();
    for (const { id, fence } of jobs) {
      for (let owner = 1; owner <= fence; owner++) await store.delete(audioKey(id, owner));
      const { numUpdatedRows } = await db
        .updateTable('job')
        .set({ audio_deleted: true })
        .where('id', '=', id)
        .where('audio_deleted', '=', false)
        .executeTakeFirstOrThrow();
      expired += Number(numUpdatedRows);
    }
    if (jobs.length < BATCH) return expired;
  }
}
