import { sql } from 'kysely';
import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { audioKey } from './job.ts';

export interface ExpiredJob {
  readonly id: string;
  readonly fence: number;
}

/**
 * Jobs whose retention has passed, and whose audio has not been deleted yet (reconcile/expired-job-audio.ts deletes it):
 * the oldest, up to so many.
 */
export async function expiredJobs(db: Database, limit: number): Promise<ExpiredJob[]> {
  return db
    .selectFrom('job')
    .select(['id', 'fence'])
    .where('audio_expires_at', '<=', sql<Date>`now()`)
    .where(sql<boolean>`not audio_deleted`)
    .orderBy('audio_expires_at')
    .limit(limit)
    .execute();
}

/** Deletes what any owner of the job has stored; tells whether that had been left to do. May be repeated. */
export async function deleteAudio(db: Database, store: AudioStore, { id, fence }: ExpiredJob): Promise<boolean> {
  for (let owner = 1; owner <= fence; owner++) await store.delete(audioKey(id, owner));
  testPoint('job audio deleted');
  const { numUpdatedRows } = await db
    .updateTable('job')
    .set({ audio_deleted: true })
    .where('id', '=', id)
    .where('audio_deleted', '=', false)
    .executeTakeFirstOrThrow();
  return numUpdatedRows > 0n;
}
