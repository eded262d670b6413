import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { addEntry } from './enqueue.ts';

/** All jobs of an account from this one on have the same turn; counting them stays cheap. */
const LAST_TURN = 1000;
/**
 * When a job goes by its age: when it has waited for two minutes for each of the jobs that its account had before it. As
 * in the index job_by_age.
 */
const GOES_BY_AGE = sql`(run_at at time zone 'utc' + turn * interval '120 seconds')`;
const BATCH = 1000;

/**
 * The place of an account's next job: how many of its jobs live. The queue takes the lowest first, and of equal ones the
 * one that was due first, so that accounts take turns however many jobs one of them has. The account's row must be
 * locked, as a hold locks it.
 */
export const nextTurn = (accountId: string): RawBuilder<number> => sql`(
  select count(*) from (
    select from job where account_id = ${accountId}::uuid and state in ('queued', 'processing') limit ${LAST_TURN}
  ) live)`;

/**
 * Keeps jobs with a high turn from waiting for ever while others come with a low one: one that has waited long enough
 * goes before all that become due later.
 */
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
