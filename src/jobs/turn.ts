import { type ExpressionBuilder, sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { anyOf, now } from '../db/expressions.ts';

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
const GOES_BY_AGE = sql<Date>`(run_at at time zone 'utc' + turn * interval '120 seconds')`;
const BATCH = 1000;
const UNFINISHED = [sql.lit('queued'), sql.lit('processing')];

/** Number of unfinished jobs; the lowest turn runs first, so accounts alternate. The account's row must be locked. */
export const nextTurn = (accountId: string) => (eb: ExpressionBuilder<DB, 'job'>) => {
  const live = eb.selectFrom('job').where('account_id', '=', accountId).where('state', 'in', UNFINISHED);
  return eb.selectFrom(live.limit(LAST_TURN).as('live')).select(eb.fn.countAll<number>().as('jobs'));
};

/** Prevents starvation by jobs with a low turn: a job that waited long enough precedes all that become due later. */
export async function advanceWaiting(db: Database): Promise<void> {
  await db
    .with('waiting', (qb) =>
      qb
        .selectFrom('job')
        .select('id')
        .where('state', '=', sql.lit('queued'))
        .where('turn', '>', sql.lit(0))
        .where((eb) => eb(GOES_BY_AGE, '<', eb.fn<Date>('timezone', [sql.lit('utc'), now])))
        .orderBy(GOES_BY_AGE)
        .limit(BATCH)
        .forUpdate()
        .skipLocked(),
    )
    .with('advanced', (qb) =>
      qb
        .updateTable('job')
        .from('waiting')
        .set({ turn: 0 })
        .whereRef('job.id', '=', 'waiting.id')
        .returning(['job.id', 'job.run_at', 'job.turn']),
    )
    .selectFrom('advanced')
    .select(addEntry.as('entry'))
    .execute();
}
