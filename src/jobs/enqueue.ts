import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** The task's name in graphile_worker's queue. */
export const TASK = 'speak';

export interface TaskPayload {
  readonly jobId: string;
}

/** Enters the job that id, run_at and turn of a query's row name: of those that are due, accounts take turns. */
export const addEntry = sql`graphile_worker.add_job(
  ${TASK}, json_build_object('jobId', id), run_at => run_at, job_key => id::text, priority => turn)`;

/**
 * Has a worker look at the job from its run_at on, as part of the caller's transaction. There is one entry a job: an
 * earlier one that waits is replaced, one that is being worked on runs out.
 */
export async function enqueue(db: Database, jobId: string): Promise<void> {
  await sql`select ${addEntry} from job where id = ${jobId}`.execute(db);
}
