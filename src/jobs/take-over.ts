import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { TASK } from './enqueue.ts';
import { DEAD_AFTER_SECONDS } from './heartbeat.ts';

/** A queue entry that nobody takes for so long after its job was due has been lost. */
const OVERDUE_SECONDS = 10;
const FORGOTTEN_AFTER_SECONDS = 3600;
const BATCH = 1000;

const dead = sql`worker.id is null or worker.heartbeat_at < now() - make_interval(secs => ${DEAD_AFTER_SECONDS})`;

/**
 * Unlocks the queue entries that dead workers had taken, queues again the jobs that they had claimed, and tells how many
 * jobs there were. Safe to run in several processes at once: each job is taken over by one. A worker that is not dead
 * but paused finds another fence when it goes on.
 */
export async function takeOverJobs(db: Database): Promise<number> {
  await unlockEntries(db);
  const { rows } = await sql`
    with lost as (
      select job.id from job left join worker on worker.id = job.worker_id
      where job.state = 'processing' and (${dead})
      limit ${BATCH} for update of job skip locked
    ), queued as (
      update job set state = 'queued', worker_id = null, run_at = now(), updated_at = now()
      from lost where job.id = lost.id
      returning job.id
    )
    select graphile_worker.add_job(${TASK}, json_build_object('jobId', id), job_key => id::text) from queued`.execute(
    db,
  );
  return rows.length;
}

/** graphile_worker itself waits for 4 hours. A worker that lives after all tells its pool with its next heartbeat. */
async function unlockEntries(db: Database): Promise<void> {
  await sql`
    with silent as (
      select id, queue_pool from worker
      where queue_pool is not null and heartbeat_at < now() - make_interval(secs => ${DEAD_AFTER_SECONDS})
      for update skip locked
    ), buried as (
      update worker set queue_pool = null from silent where worker.id = silent.id
    )
    select graphile_worker.force_unlock_workers(array_agg(queue_pool)) from silent having count(*) > 0`.execute(db);
}

/**
 * The safety net under the queue: unlocks the entries of pools that no worker has, and enters those due jobs again that
 * have no entry that is going to run. Tells how many jobs were entered again.
 */
export async function requeueLostJobs(db: Database): Promise<number> {
  await sql`
    select graphile_worker.force_unlock_workers(array_agg(distinct locked_by))
    from graphile_worker.jobs left join worker on worker.queue_pool = locked_by
    where task_identifier = ${TASK} and locked_at < now() - make_interval(secs => ${DEAD_AFTER_SECONDS})
      and (${dead})`.execute(db);
  const { rows } = await sql`
    with lost as (
      select job.id from job left join graphile_worker.jobs entry on entry.key = job.id::text
      where job.state = 'queued' and job.run_at < now() - make_interval(secs => ${OVERDUE_SECONDS})
        and (entry.id is null or entry.locked_at is null
             and (entry.attempts >= entry.max_attempts
                  or entry.run_at > now() + make_interval(secs => ${OVERDUE_SECONDS})))
      limit ${BATCH}
    )
    select graphile_worker.add_job(${TASK}, json_build_object('jobId', id), job_key => id::text) from lost`.execute(db);
  await db
    .deleteFrom('worker')
    .where('heartbeat_at', '<', sql<Date>`now() - make_interval(secs => ${FORGOTTEN_AFTER_SECONDS})`)
    .execute();
  return rows.length;
}
