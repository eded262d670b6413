import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { anyOf } from '../db/expressions.ts';

export const TASK = 'speak';

export type TaskPayload = { readonly jobId: string };

/** One entry per job: a waiting entry is replaced, a running one ends by itself. */
export const addEntry = sql`graphile_worker.add_job(
  ${TASK}, json_build_object('jobId', id), run_at => run_at, job_key => id::text, priority => turn)`;

/** Queues each job from its run_at on, within the caller's transaction. */
export async function enqueue(db: Database, ...jobIds: readonly string[]): Promise<void> {
  await db.selectFrom('job').select(addEntry.as('entry')).where('id', '=', anyOf(jobIds)).execute();
}

const LAST_TURN = 1000;
/** From this time on a job goes by age: after two minutes per earlier job of its account. Same as index job_by_age. */
const GOES_BY_AGE = sql`(run_at at time zone 'utc' + turn * interval '120 seconds')`;
const BATCH = 1000;

/** Number of unfinished jobs; the lowest turn runs first, so accounts alternate. The account's row must be locked. */
export const nextTurn = (accountId: string): RawBuilder<number> => sql`(
  select count(*) from (
    select from job where account_id = ${accountId}::uuid and state in ('queued', 'processing') limit ${LAST_TURN}
  ) live)`;

/** Prevents starvation by jobs with a low turn: a job that waited long enough precedes all that become due later. */
export async function advanceWaiting(db: Database): Promise<void> {
  await sql`
    with waiting as (
      select id from job
      where state = 'queued' and turn > 0 and ${GOES_BY_AGE} < now() at time zone 'utc'
      order by ${GOES_BY_AGE} limit ${BATCH} for update skip locked
    ), advanced as (
      update job set turn = 0 from waiting where job.id = waiting.id returning job.id, job.run_at, job.turn
    )
    select ${addEntry} from advanced`.execute(db);
}
