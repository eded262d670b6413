import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { addEntry, TASK } from './enqueue.ts';
import { DEAD_AFTER_SECONDS } from './heartbeat.ts';
import { MAX_ELAPSED_MS } from './retry.ts';

/** A queue entry that nobody takes for so long after its job was due has been lost. */
const OVERDUE_SECONDS = 10;
/** No attempt takes so long, whatever the settings: a job that was claimed before that hangs. */
const HANGS_AFTER_SECONDS = 3600;
const FORGOTTEN_AFTER_SECONDS = 3600;
const BATCH = 1000;

/** Whether what was true at a time has been silent since for so long, or the database's clock has stepped back. */
const isSilent = (at: string) =>
  sql<boolean>`lease_has_ended(${sql.ref(at)} + make_interval(secs => ${DEAD_AFTER_SECONDS}), ${DEAD_AFTER_SECONDS})`;
const dead = sql<boolean>`(worker.id is null or ${isSilent('worker.heartbeat_at')})`;
/** The answer to the claim never reached the worker that lives. */
const unnamed = sql<boolean>`(job.updated_at < worker.named_since and job.id <> all (worker.job_ids))`;
const hanging = sql<boolean>`(job.updated_at < now() - make_interval(secs => ${HANGS_AFTER_SECONDS}))`;

/**
 * Unlocks the queue entries that dead workers had taken, queues again the jobs that were claimed by dead workers, or by
 * a worker that doesn't know of it or hangs, and tells how many jobs there were. An attempt that nobody has begun
 * doesn't count. Safe to run in several processes at once: each job is taken over by one. A worker that is not dead but
 * paused finds another fence when it goes on.
 */
export async function takeOverJobs(db: Database): Promise<number> {
  await unlockEntries(db);
  testPoint('entries of dead workers unlocked');
  const { rows } = await sql`
    with lost as (
      select job.id, not ${dead} and ${unnamed} as not_begun
      from job left join worker on worker.id = job.worker_id
      where job.state = 'processing' and (${dead} or ${unnamed} or ${hanging})
      limit ${BATCH} for update of job skip locked
    ), queued as (
      update job set state = 'queued', worker_id = null, run_at = now(), updated_at = now(),
                     attempts = attempts - not_begun::int
      from lost where job.id = lost.id
      returning job.id, job.run_at, job.turn
    )
    select ${addEntry} from queued`.execute(db);
  return rows.length;
}

/** graphile_worker itself waits for 4 hours. A worker that lives after all tells its pool with its next heartbeat. */
async function unlockEntries(db: Database): Promise<void> {
  await sql`
    with silent as (
      select id, queue_pool from worker
      where queue_pool is not null and ${isSilent('heartbeat_at')}
      for update skip locked
    ), buried as (
      update worker set queue_pool = null from silent where worker.id = silent.id
    )
    select graphile_worker.force_unlock_workers(array_agg(queue_pool)) from silent having count(*) > 0`.execute(db);
}

/**
 * The safety net under the queue: unlocks the entries that nobody runs, and enters those due jobs again that have no
 * entry that is going to run. Tells how many jobs were entered again.
 */
export async function requeueLostJobs(db: Database): Promise<number> {
  await makeDue(db);
  await unlockLostEntries(db);
  testPoint('lost entries unlocked');
  const { rows } = await sql`
    with lost as (
      select job.id, job.run_at, job.turn
      from job left join graphile_worker.jobs entry on entry.key = job.id::text
      where job.state = 'queued' and job.run_at < now() - make_interval(secs => ${OVERDUE_SECONDS})
        and (entry.id is null or entry.locked_at is null
             and (entry.attempts >= entry.max_attempts
                  or entry.run_at > now() + make_interval(secs => ${OVERDUE_SECONDS})))
      limit ${BATCH}
    )
    select ${addEntry} from lost`.execute(db);
  await db
    .deleteFrom('worker')
    .where('heartbeat_at', '<', sql<Date>`now() - make_interval(secs => ${FORGOTTEN_AFTER_SECONDS})`)
    .execute();
  return rows.length;
}

/** A job that is due later than any wait between two attempts was queued before the database's clock stepped back. */
async function makeDue(db: Database): Promise<void> {
  await sql`
    with waiting as (
      select id from job where state = 'queued' and run_at > now() + make_interval(secs => ${MAX_ELAPSED_MS / 1000})
      limit ${BATCH} for update skip locked
    ), due as (
      update job set run_at = now() from waiting where job.id = waiting.id returning job.id, job.run_at, job.turn
    )
    select ${addEntry} from due`.execute(db);
}

/**
 * Unlocks the entries of pools that no worker has, and of workers that don't run them, since the answer that gave them
 * never arrived. graphile_worker unlocks all entries of a pool or none: whoever takes one that was running finds that
 * its job is claimed.
 */
async function unlockLostEntries(db: Database): Promise<void> {
  await sql`
    select graphile_worker.force_unlock_workers(array_agg(distinct entry.locked_by))
    from graphile_worker.jobs entry left join worker on worker.queue_pool = entry.locked_by
    where entry.task_identifier = ${TASK} and ${isSilent('entry.locked_at')}
      and (${dead} or (entry.locked_at < worker.named_since and entry.id <> all (worker.entry_ids)))
    having count(*) > 0`.execute(db);
}
