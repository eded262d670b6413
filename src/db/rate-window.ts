import { createHash, randomBytes } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import type { Database } from './database.ts';
import { now } from './expressions.ts';

export interface Bucket {
  readonly scope: 'account' | 'ip' | 'feedback' | 'top-up' | 'audio';
  readonly key: string;
}

export interface WindowSize {
  readonly max: number;
  readonly windowSeconds: number;
}

/** Of all attempts that one statement made on a bucket. */
export interface TakenSlots {
  readonly scope: Bucket['scope'];
  readonly granted: number;
  /** How many slots of the window are taken now. */
  readonly taken: number;
  readonly reset_seconds: number;
}

export const bucketKey = ({ scope, key }: Bucket): Buffer => createHash('sha256').update(`${scope}\0${key}`).digest();

/**
 * Takes slots of buckets (R39): as many as there are attempts, while the window has any left. The row lock serializes
 * statements on one bucket, and the clock is read under it. Returns `key` and the columns of TakenSlots.
 * @param buckets rows with `key`, `scope` and `attempts`, for a `from`
 */
export function takeSlots<Row extends TakenSlots>(
  buckets: RawBuilder<unknown>,
  { max, windowSeconds }: WindowSize,
): RawBuilder<Row> {
  const window = sql`${windowSeconds}::double precision * interval '1 second'`;
  return sql`
    insert into rate_window (key, scope, checked_at, allowed, granted, taken)
    select key, scope, at, true, granted, array_fill(at, array[granted])
    from ${buckets}, (select clock_timestamp() as at) clock, lateral (select least(attempts, ${max}::int) as granted) asked
    order by key
    on conflict (key) do update set (checked_at, allowed, granted, taken) = (
      select at, granted > 0, granted, live || array_fill(at, array[granted])
      from (
        select at, rate_window.taken[width_bucket(at - ${window}, rate_window.taken) + 1 :] as live
        from (select greatest(clock_timestamp(), rate_window.checked_at) as at) clock
      ) attempt, lateral (
        select least(excluded.granted, greatest(${max}::int - cardinality(live), 0)) as granted
      ) room
    )
    returning key, scope, granted, cardinality(taken) as taken,
              ceil(extract(epoch from taken[greatest(cardinality(taken) - ${max}::int, 0) + 1] + ${window} - checked_at))::int
                as reset_seconds`;
}

/** How many slots of the bucket's window are taken, and the seconds until one is free, without taking one. */
export async function readSlots(db: Database, bucket: Bucket, { max, windowSeconds }: WindowSize) {
  const window = sql`make_interval(secs => ${windowSeconds}::double precision)`;
  const { rows } = await sql<{ taken: number; reset_seconds: number | null }>`
    select cardinality(live) as taken,
           ceil(extract(epoch from live[greatest(cardinality(live) - ${max}::int, 0) + 1] + ${window} - at))::int
             as reset_seconds
    from (
      select at, taken[width_bucket(at - ${window}, taken) + 1 :] as live
      from rate_window, (select clock_timestamp() as at) clock where key = ${bucketKey(bucket)}::bytea
    ) state`.execute(db);
  return { taken: rows[0]?.taken ?? 0, resetSeconds: rows[0]?.reset_seconds ?? 0 };
}

const PRUNED_ROWS = 1000;

/** Deletes a batch of windows that hold no taken slot any more. Returns the count. */
export async function pruneWindows(db: Database, windowSeconds: number): Promise<number> {
  const emptySince = sql<Date>`(select clock_timestamp() - make_interval(secs => ${windowSeconds}::double precision + 60))`;
  const empty = db
    .selectFrom('rate_window')
    .select('key')
    .where('checked_minute', '<', emptySince)
    .orderBy('checked_minute')
    .limit(PRUNED_ROWS);
  const windows = db
    .deleteFrom('rate_window')
    .where('key', '=', sql<Buffer>`any(array${empty.forUpdate().skipLocked()})`);
  return Number((await windows.executeTakeFirst()).numDeletedRows);
}

/**
 * Writes a row of no bucket on one connection, in a transaction and then without one, reads it on another, and removes it.
 * Pgpool 4.3.5 in raw mode begins a transaction when it prepares a write outside of one, and never ends it.
 */
export async function isCommitKept(db: Database): Promise<boolean> {
  const key = randomBytes(32);
  return await db.connection().execute(async (writer) => {
    const row = { key, scope: 'doctor', checked_at: now, allowed: false, taken: [] };
    await writer.transaction().execute((trx) => trx.insertInto('rate_window').values(row).execute());
    await writer.updateTable('rate_window').set({ allowed: true }).where('key', '=', key).execute();
    const seen = await db
      .connection()
      .execute((reader) =>
        reader.selectFrom('rate_window').select('allowed').where('key', '=', key).executeTakeFirst(),
      );
    await writer.deleteFrom('rate_window').where('key', '=', key).execute();
    return seen?.allowed === true;
  });
}
