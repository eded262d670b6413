import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';

/*
 * A process that places holds tells the database that it lives, and which of their answers are delivered:
 *
 *     (none) -- registerProcess --> living -- writeCheckpoint --> living
 *                                   living -- silence --> suspected -- writeCheckpoint --> living
 *                                                         suspected -- silence --> dead -- forgetProcess --> (none)
 *                                   living -- retireProcess, when nothing is unfinished --> (none)
 *
 * The suspicion keeps an outage of the database apart from the death of a process: who is dead stays silent while the
 * database can be reached.
 */

/** A process is suspected after so long a silence, by the database's clock. */
const SILENT_AFTER_SECONDS = 20;
/** A process that stays silent for so long after that is dead. */
const DEAD_AFTER_SUSPICION_SECONDS = 10;
/** A process that has been silent for less can't be dead; what it delivers is not reversed. */
export const SURELY_ALIVE_MS = (SILENT_AFTER_SECONDS + DEAD_AFTER_SUSPICION_SECONDS - 5) * 1000;

/** Which holds of a process are finished: delivered, ended without a charge, or left by their callers. */
export interface Checkpoint {
  /** Of the holds with smaller ids, all but those of `unfinished`. */
  readonly finishedBelow: bigint;
  readonly unfinished: readonly bigint[];
  /** Of the holds from there on, these. */
  readonly finished: readonly bigint[];
}

/** Registers a process. All its holds have ids from `firstHoldId` on. */
export async function registerProcess(db: Database): Promise<{ id: number; firstHoldId: bigint }> {
  const { rows } = await sql<{ id: number; firstHoldId: bigint }>`
    insert into gateway_process (finished_below) select coalesce(max(id), 0) + 1 from transfer
    returning id, finished_below as "firstHoldId"`.execute(db);
  return rows[0] as { id: number; firstHoldId: bigint };
}

/**
 * Tells that the process lives, and what it has finished. Doesn't wait for the disk: after a crash of the database the
 * next one makes up for it. False when the process was declared dead: its holds belong to the reconcilers then.
 */
export async function writeCheckpoint(db: Database, id: number, checkpoint: Checkpoint): Promise<boolean> {
  const { finishedBelow, unfinished, finished } = checkpoint;
  const { rows } = await sql`
    with quick as materialized (select set_config('synchronous_commit', 'off', true))
    update gateway_process set heartbeat_at = now(), suspected_at = null,
      finished_below = ${finishedBelow}, unfinished = ${unfinished}::bigint[], finished = ${finished}::bigint[]
    from quick where id = ${id} and not is_dead
    returning id`.execute(db);
  return rows.length > 0;
}

/** Forgets a process that stops with everything finished. */
export async function retireProcess(db: Database, id: number): Promise<void> {
  await db.deleteFrom('gateway_process').where('id', '=', id).where('is_dead', '=', false).execute();
}

/** Suspects the processes that are silent, declares those dead that were suspected before and stayed silent. */
export async function judgeProcesses(db: Database): Promise<void> {
  await sql`
    update gateway_process set
      is_dead = suspected_at is not null, suspected_at = coalesce(suspected_at, now())
    where heartbeat_at < now() - ${seconds(SILENT_AFTER_SECONDS)} and not is_dead
      and (suspected_at is null or suspected_at < now() - ${seconds(DEAD_AFTER_SUSPICION_SECONDS)})`.execute(db);
}

export interface DeadProcess {
  readonly id: number;
  /** Some hold of it is pending still: it may be frozen only, and capture that later. */
  readonly isHolding: boolean;
}

export async function deadProcesses(db: Database): Promise<DeadProcess[]> {
  const { rows } = await sql<DeadProcess>`
    select id, exists (select from transfer where process_id = process.id and state = 'pending') as "isHolding"
    from gateway_process process where is_dead`.execute(db);
  return rows;
}

/** How many charges are told at a time. */
export const UNDELIVERED_BATCH = 1000;

/**
 * Charges of a dead process, at most UNDELIVERED_BATCH, that were neither delivered nor reversed as far as it has told.
 * One whose lost answer is stored stays: its caller can have it (R60). None of a process that others have forgotten.
 * Reads all transfers since it has told that last.
 */
export async function undeliveredCharges(db: Database, { id }: DeadProcess): Promise<bigint[]> {
  // It is counted for each one: `not exists` may read all reversals.
  const isUndelivered = sql`
    process_id = ${id} and state = 'posted' and (select count(*) from reversal where transfer_id = transfer.id) = 0
    and (select count(*) from lost_answer where hold_id = transfer.id and stored_at is not null) = 0`;
  const told = (what: RawBuilder<unknown>) => sql`(select ${what} from gateway_process where id = ${id} and is_dead)`;
  const ids = (column: string) => sql`array${told(sql`unnest(${sql.ref(column)})`)}`;
  const { rows } = await sql<{ id: bigint }>`
    (select id from transfer where id = any(${ids('unfinished')}) and ${isUndelivered} order by id limit ${UNDELIVERED_BATCH})
    union all
    (select id from transfer where id >= ${told(sql`finished_below`)} and id <> all(${ids('finished')}) and ${isUndelivered}
     order by id limit ${UNDELIVERED_BATCH})
    order by id limit ${UNDELIVERED_BATCH}`.execute(db);
  return rows.map((row) => row.id);
}

/** Forgets a dead process once everything of it has been swept. */
export async function forgetProcess(db: Database, id: number): Promise<void> {
  await db.deleteFrom('gateway_process').where('id', '=', id).where('is_dead', '=', true).execute();
}

const seconds = (count: number): RawBuilder<unknown> => sql`make_interval(secs => ${count}::double precision)`;
