import { type Selection, sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { isUuid } from '../lib/uuid.ts';
import type { AudioType } from '../speech/provider.ts';
import { audioKey, type Job } from './job.ts';

/** The job with this id, or undefined when there is none; an id that is no UUID is unknown (R57). */
export async function findJob(db: Database, id: string): Promise<Job | undefined> {
  if (!isUuid(id)) return undefined;
  const row = await db.selectFrom('job').select(JOB_COLUMNS).where('id', '=', id).executeTakeFirst();
  return row && jobOf(row);
}

/** What `jobOf` reads. */
export const JOB_COLUMNS = [
  ...(['id', 'state', 'fence', 'trace_id', 'created_at', 'updated_at', 'started_at', 'completed_at'] as const),
  ...(['error_code', 'error_message', 'mime_type', 'size_bytes', 'audio_expires_at'] as const),
  sql<boolean>`coalesce(audio_expires_at > now(), false)`.as('is_stored'),
] as const;

/** The job that a row of these columns tells of. */
export function jobOf(row: Selection<DB, 'job', (typeof JOB_COLUMNS)[number]>): Job {
  const { error_code: code, error_message: message, mime_type: mimeType, size_bytes: sizeBytes } = row;
  const expiresAt = row.is_stored ? row.audio_expires_at : null;
  const stored = expiresAt && { key: audioKey(row.id, row.fence), expiresAt };
  return {
    id: row.id,
    state: row.state as Job['state'],
    traceId: row.trace_id,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    startedAt: row.started_at,
    completedAt: row.completed_at,
    error: code !== null && message !== null ? { code, message } : null,
    audio: mimeType !== null && sizeBytes !== null ? { mimeType: mimeType as AudioType, sizeBytes, stored } : null,
  };
}
