import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** A worker that was silent for so long is dead: its jobs are taken over. */
export const DEAD_AFTER_SECONDS = 10;

/** What a worker has in hand. A claim or an entry that is still on its way to it may be missing. */
export interface Holdings {
  /** Jobs that it has claimed, or has asked for. */
  readonly jobIds: readonly string[];
  /** Entries of graphile_worker's queue that it runs. */
  readonly entryIds: readonly string[];
  /** What the heartbeat told whose answer came before these were gathered. */
  readonly since: string;
}

/**
 * Tells that the worker lives, which of graphile_worker's pools is its own, and what it has in hand. What it took before
 * `since` and doesn't name never reached it, and is taken over (takeOverJobs): no claim that is under way is that old.
 * @returns the time of this heartbeat by the database's clock, for the next one's `since`
 */
export async function beat(
  db: Database,
  workerId: string,
  queuePool: string | undefined,
  holdings?: Holdings,
): Promise<string> {
  const { rows } = await sql<{ at: string }>`
    insert into worker (id, queue_pool, job_ids, entry_ids, named_since)
    values (${workerId}, ${queuePool ?? null}, ${holdings?.jobIds ?? null}::uuid[], ${holdings?.entryIds ?? null}::bigint[],
            ${holdings?.since ?? null}::timestamptz)
    on conflict (id) do update
      set heartbeat_at = now(), queue_pool = excluded.queue_pool, job_ids = excluded.job_ids,
          entry_ids = excluded.entry_ids, named_since = excluded.named_since
    returning heartbeat_at::text as at`.execute(db);
  return (rows[0] as { at: string }).at;
}

/** Tells that the worker has stopped; a job that it still owns can be taken over at once. */
export async function signOff(db: Database, workerId: string): Promise<void> {
  await db.deleteFrom('worker').where('id', '=', workerId).execute();
}
