import { expressionBuilder, type Selection, sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import { ASYNC_TEXT_LENGTH } from '../config/speech-limits.ts';
import type { Database } from '../db/database.ts';
import { now, secondsSince } from '../db/expressions.ts';
import { testPoint } from '../lib/test-point.ts';
import { isUuid } from '../lib/uuid.ts';
import type { AudioType } from '../speech/provider.ts';
import type { AudioStore } from '../speech/store/audio-store.ts';
import { deleteSegments } from './job-segments.ts';

/**
 * Asynchronous speech (R6), paid from card credit only. The response is 202 with the job; its hold has debited the account
 * before synthesis, and ends with it, in the same transaction (R18).
 *
 *     (none) -- accept --> queued -- claim --> processing -- complete --> completed, hold captured
 *                          queued <-- stop, retry, take over -- processing
 *                                              processing -- fail --> failed, hold voided
 */
export interface Job {
  readonly id: string;
  readonly state: 'queued' | 'processing' | 'completed' | 'failed';
  readonly traceId: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly startedAt: Date | null;
  readonly completedAt: Date | null;
  /** Of a job that is spoken in segments. */
  readonly progress: { readonly characters: number; readonly total: number } | undefined;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly audio: {
    readonly mimeType: AudioType;
    readonly sizeBytes: number;
    readonly stored: { readonly key: string; readonly expiresAt: Date } | null;
  } | null;
}

/** Contains the owner's fence, so that two owners of a job never write the same object. */
export const audioKey = (jobId: string, fence: number): string => `jobs/${jobId}/${fence}`;

/** A request becomes a job if it asks for that (`async=true`), or by its length (R6). */
export const isAsynchronous = (asked: boolean, characters: number): boolean => asked || characters >= ASYNC_TEXT_LENGTH;

/** Any text that is no UUID is an unknown job (R57). */
export async function findJob(db: Database, id: string): Promise<Job | undefined> {
  if (!isUuid(id)) return undefined;
  const row = await db.selectFrom('job').select(JOB_COLUMNS).where('id', '=', id).executeTakeFirst();
  return row && jobOf(row);
}

const job = expressionBuilder<DB, 'job'>();
const segments = job.selectFrom('job_segment').whereRef('job_id', '=', 'id');

export const JOB_COLUMNS = [
  ...(['id', 'state', 'fence', 'trace_id', 'created_at', 'updated_at', 'started_at', 'completed_at'] as const),
  ...(['error_code', 'error_message', 'mime_type', 'size_bytes', 'audio_expires_at'] as const),
  segments.select(({ cast, fn }) => cast<number>(fn.sum('characters'), 'integer').as('characters')).as('total'),
  segments
    .where('spoken_at', 'is not', null)
    .select(({ cast, fn }) => cast<number>(fn.sum('characters'), 'integer').as('characters'))
    .as('spoken'),
  job.fn.coalesce(job('audio_expires_at', '>', now), job.lit(false)).as('is_stored'),
] as const;

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
    progress: row.total === null ? undefined : { characters: row.spoken ?? 0, total: row.total },
    error: code !== null && message !== null ? { code, message } : null,
    audio: mimeType !== null && sizeBytes !== null ? { mimeType: mimeType as AudioType, sizeBytes, stored } : null,
  };
}

export async function backlog(db: Database) {
  const isQueued = job('state', '=', sql.lit('queued'));
  const isProcessing = job('state', '=', sql.lit('processing'));
  const firstDue = job.fn.min('run_at').filterWhere(isQueued);
  const firstUpdated = job.fn.min('updated_at').filterWhere(isProcessing);
  return db
    .selectFrom('job')
    .select(({ cast, fn, lit }) => [
      cast<number>(fn.countAll().filterWhere(isQueued), 'integer').as('queued'),
      cast<number>(fn.countAll().filterWhere(isProcessing), 'integer').as('processing'),
      fn<number>('greatest', [secondsSince(firstDue), lit(0)]).as('oldestDueSeconds'),
      fn.coalesce(secondsSince(firstUpdated), lit(0)).as('oldestProcessingSeconds'),
    ])
    .where('state', 'in', [sql.lit('queued'), sql.lit('processing')])
    .executeTakeFirstOrThrow();
}

type ExpiredJob = { readonly id: string; readonly fence: number };

export const expiredJobs = (db: Database, limit: number): Promise<ExpiredJob[]> =>
  db
    .selectFrom('job')
    .select(['id', 'fence'])
    .where('audio_expires_at', '<=', now)
    .where('audio_deleted', '=', sql.lit(false))
    .orderBy('audio_expires_at')
    .limit(limit)
    .execute();

/** Deletes the audio that any owner of the job stored; may be repeated. Returns false if that was done before. */
export async function deleteAudio(db: Database, store: AudioStore, { id, fence }: ExpiredJob): Promise<boolean> {
  for (let owner = 1; owner <= fence; owner++) await store.delete(audioKey(id, owner));
  await deleteSegments(db, store, id);
  testPoint('job audio deleted');
  const { numUpdatedRows } = await db
    .updateTable('job')
    .set({ audio_deleted: true })
    .where('id', '=', id)
    .where('audio_deleted', '=', false)
    .executeTakeFirstOrThrow();
  return numUpdatedRows > 0n;
}

export async function countUnfinishedJobs(db: Database, accountId: string): Promise<number> {
  const { count } = await db
    .selectFrom('job')
    .select(({ cast, fn }) => cast<number>(fn.countAll(), 'integer').as('count'))
    .where('account_id', '=', accountId)
    .where('state', 'in', [sql.lit('queued'), sql.lit('processing')])
    .executeTakeFirstOrThrow();
  return count;
}

/** Ends the retention of an account's audio: it is refused from now on, and reconcilers delete it. Returns the count. */
export async function expireAudio(db: Database, accountId: string): Promise<number> {
  const jobs = db.updateTable('job').set({ audio_expires_at: now }).where('account_id', '=', accountId);
  const { numUpdatedRows } = await jobs.where('audio_expires_at', '>', now).executeTakeFirstOrThrow();
  return Number(numUpdatedRows);
}
