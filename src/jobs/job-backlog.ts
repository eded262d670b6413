import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

export interface Backlog {
  readonly queued: number;
  readonly processing: number;
  /** How long the job that has been due the longest waits already, 0 without any. */
  readonly oldestDueSeconds: number;
  /** How long ago the attempt began that has run the longest, 0 without any. */
  readonly oldestProcessingSeconds: number;
}

/** The jobs that have not ended. */
export async function backlog(db: Database): Promise<Backlog> {
  const { rows } = await sql<Row>`
    select count(*) filter (where state = 'queued')::int as queued,
           count(*) filter (where state = 'processing')::int as processing,
           coalesce(greatest(extract(epoch from now() - min(run_at) filter (where state = 'queued')), 0), 0)::float8
             as oldest_due_seconds,
           coalesce(extract(epoch from now() - min(updated_at) filter (where state = 'processing')), 0)::float8
             as oldest_processing_seconds
    from job where state in ('queued', 'processing')`.execute(db);
  const row = rows[0];
  return {
    queued: row?.queued ?? 0,
    processing: row?.processing ?? 0,
    oldestDueSeconds: row?.oldest_due_seconds ?? 0,
    oldestProcessingSeconds: row?.oldest_processing_seconds ?? 0,
  };
}

interface Row {
  readonly queued: number;
  readonly processing: number;
  readonly oldest_due_seconds: number;
  readonly oldest_processing_seconds: number;
}
