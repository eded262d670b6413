import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { anyFrom, leaseHasEnded, now, secondsFromNow } from '../db/expressions.ts';
import { LEASE_SECONDS } from '../db/lease.ts';
import { testPoint } from '../lib/test-point.ts';
import { MAX_ELAPSED_MS } from './run-job.ts';
import { enqueue } from './turn.ts';

/** If its job is still queued this long after it was due, an entry is lost. So is one locked for this long. */
const OVERDUE_SECONDS = 10;
const BATCH = 1000;

/** Requeues jobs whose lease has expired (R18). A worker that was only paused finds a higher fence when it continues. */
export async function takeOverJobs(db: Database): Promise<number> {
  const running = db.selectFrom('job').select('id').where('state', '=', sql.lit('processing'));
  const ended = anyFrom(running.where(leaseHasEnded(LEASE_SECONDS)).limit(BATCH).forUpdate().skipLocked());
  const queued = { state: 'queued', lease_until: null, run_at: now, updated_at: now };
  const jobs = await db.updateTable('job').set(queued).where('id', '=', ended).returning('id').execute();
  testPoint('jobs queued again');
  await enterJobs(db, jobs);
  return jobs.length;
}

/** Requeues due jobs without a runnable entry. graphile_worker keeps entries of dead workers locked for 4 hours. */
export async function requeueLostJobs(db: Database): Promise<number> {
  await makeDue(db);
  const { rows } = await sql<{ id: string }>`
    select job.id from job left join graphile_worker.jobs entry on entry.key = job.id::text
    where job.state = 'queued' and job.run_at < now() - make_interval(secs => ${OVERDUE_SECONDS})
      and (entry.id is null or entry.attempts >= entry.max_attempts
           or entry.run_at > now() + make_interval(secs => ${OVERDUE_SECONDS})
           or entry.locked_at not between now() - make_interval(secs => ${OVERDUE_SECONDS})
                                      and now() + make_interval(secs => ${OVERDUE_SECONDS}))
    limit ${BATCH}`.execute(db);
  await enterJobs(db, rows);
  return rows.length;
}

/** A job due later than any retry delay was queued before the database's clock stepped back. */
async function makeDue(db: Database): Promise<void> {
  const latest = secondsFromNow(MAX_ELAPSED_MS / 1000);
  const queued = db.selectFrom('job').select('id').where('state', '=', sql.lit('queued'));
  const early = anyFrom(queued.where('run_at', '>', latest).limit(BATCH).forUpdate().skipLocked());
  const jobs = db.updateTable('job').set({ run_at: now }).where('id', '=', early);
  await enterJobs(db, await jobs.returning('id').execute());
}

async function enterJobs(db: Database, jobs: readonly { id: string }[]): Promise<void> {
  if (jobs.length > 0) await enqueue(db, ...jobs.map(({ id }) => id));
}
