import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

export const HEARTBEAT_MS = 2_000;
/** A worker that was silent for so long is dead: its jobs are taken over. */
export const DEAD_AFTER_SECONDS = 10;

/** Tells that the worker lives, and which of graphile_worker's pools is its own. */
export async function beat(db: Database, workerId: string, queuePool: string | undefined): Promise<void> {
  await sql`
    insert into worker (id, queue_pool) values (${workerId}, ${queuePool ?? null})
    on conflict (id) do update set heartbeat_at = now(), queue_pool = excluded.queue_pool`.execute(db);
}

/** Tells that the worker has stopped; a job that it still owns can be taken over at once. */
export async function signOff(db: Database, workerId: string): Promise<void> {
  await db.deleteFrom('worker').where('id', '=', workerId).execute();
}
