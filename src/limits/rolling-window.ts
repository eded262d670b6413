import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import { cardAccountExists, isAccountId } from '../ledger/accounts.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Scope, Slot } from './slot.ts';

/** A bucket of the persistent window. Its key is stored hashed only. */
export interface Bucket {
  readonly scope: Exclude<Scope, 'edge'>;
  readonly key: string;
}

export interface WindowOptions {
  /** Requests per bucket within any `windowSeconds`. */
  readonly max: number;
  readonly windowSeconds: number;
  /** Of the card processor's key; accounts of the other mode have no bucket. Undefined for either mode. */
  readonly livemode?: boolean | undefined;
}

/** Rows that one pruning deletes at most, so that it stays short. */
const PRUNE_ROWS = 1000;

/**
 * The persistent rate limit (R39): of any window's length of time, a bucket's first `max` attempts get a slot, whichever
 * process asks. The database's clock counts, and a slot is given back exactly when its age reaches the window's length.
 */
export class RollingWindow {
  readonly #db: Database;
  readonly #options: WindowOptions;
  readonly #metrics: Metrics;

  /** @param db never a transaction: taking a slot commits by itself, without waiting for the disk */
  constructor(db: Database, options: WindowOptions, metrics: Metrics) {
    this.#db = db;
    this.#options = options;
    this.#metrics = metrics;
  }

  /** Takes a slot of the bucket, or tells when there will be one. */
  take(bucket: Bucket): Promise<Slot> {
    return this.#take(null, bucket);
  }

  /**
   * Takes a slot of the card account's own bucket if that account exists, otherwise one of the other bucket, so that
   * inventing account ids opens no new buckets (R13).
   */
  takeForAccount(accountId: string | undefined, otherwise: Bucket): Promise<Slot> {
    const known = accountId !== undefined && isAccountId(accountId);
    return this.#take(known ? accountId.toLowerCase() : null, otherwise);
  }

  /** The slot that somebody is told who is refused without an attempt; counted as a refusal. */
  refuse({ scope }: Bucket, resetSeconds: number): Slot {
    const { max, windowSeconds } = this.#options;
    this.#metrics.rateLimitRefused(scope);
    return { scope, allowed: false, limit: max, windowSeconds, remaining: 0, resetSeconds };
  }

  /** How many slots a bucket has. */
  get max(): number {
    return this.#options.max;
  }

  /** Tells the bucket's state, and takes nothing. */
  async read(bucket: Bucket): Promise<Slot> {
    const { max, windowSeconds } = this.#options;
    const window = sql`make_interval(secs => ${windowSeconds}::double precision)`;
    const { rows } = await sql<{ taken: number; reset_seconds: number | null }>`
      select cardinality(live) as taken,
             ceil(extract(epoch from live[greatest(cardinality(live) - ${max}::int, 0) + 1] + ${window} - at))::int
               as reset_seconds
      from (
        select at, taken[width_bucket(at - ${window}, taken) + 1 :] as live
        from rate_window, (select clock_timestamp() as at) clock where key = ${hash(bucket)}::bytea
      ) state`.execute(this.#db);
    const taken = rows[0]?.taken ?? 0;
    return {
      scope: bucket.scope,
      allowed: taken < max,
      limit: max,
      windowSeconds,
      remaining: Math.max(max - taken, 0),
      resetSeconds: rows[0]?.reset_seconds ?? 0,
    };
  }

  /**
   * One statement. The row's lock puts attempts on one bucket in order, and the clock is read under it. What a crash of
   * the database may lose is the last moment's counts, so nobody waits until they are on disk.
   */
  async #take(accountId: string | null, otherwise: Bucket): Promise<Slot> {
    const { max, windowSeconds, livemode = null } = this.#options;
    const accountKey = accountId === null ? null : hash({ scope: 'account', key: accountId });
    const { rows } = await statement<{
      scope: Bucket['scope'];
      allowed: boolean;
      taken: number;
      reset_seconds: number;
    }>`
      with bucket as (
        select case when known then 'account' else ${otherwise.scope}::text end as scope,
               case when known then ${accountKey}::bytea else ${hash(otherwise)}::bytea end as key
        from (select ${cardAccountExists(accountId, livemode)} as known) requested
      )
      insert into rate_window (key, scope, checked_at, allowed, taken)
      select key, scope, at, true, array[at]
      from bucket, (select clock_timestamp() as at) clock
      where set_config('synchronous_commit', 'off', true) = 'off'
      on conflict (key) do update set (checked_at, allowed, taken) = (
        select at, cardinality(live) < ${max}::int, case when cardinality(live) < ${max}::int then live || at else live end
        from (
          select at, rate_window.taken[width_bucket(at - ${windowSeconds}::double precision * interval '1 second', rate_window.taken) + 1 :] as live
          from (select greatest(clock_timestamp(), rate_window.checked_at) as at) clock
        ) attempt
      )
      returning scope, allowed, cardinality(taken) as taken,
                ceil(extract(epoch from
                  taken[greatest(cardinality(taken) - ${max}::int, 0) + 1] + ${windowSeconds}::double precision * interval '1 second' - checked_at
                ))::int as reset_seconds`.execute(this.#db);
    const row = rows[0];
    if (!row) throw new Error('the rate window returned no row');
    if (!row.allowed) this.#metrics.rateLimitRefused(row.scope);
    return {
      scope: row.scope,
      allowed: row.allowed,
      limit: max,
      windowSeconds,
      remaining: Math.max(max - row.taken, 0),
      resetSeconds: row.reset_seconds,
    };
  }

  /**
   * Deletes buckets that hold no slot any more, a bounded number of them. Tells how many; never waits for a taker. They
   * are found by the minute of their latest attempt, so one may stay for a minute longer.
   * @param windowSeconds of the longest window that buckets in the table are counted in
   */
  async prune(windowSeconds = this.#options.windowSeconds): Promise<number> {
    const { numAffectedRows } = await sql`
      delete from rate_window where key = any(array(
        select key from rate_window
        where checked_minute < (select clock_timestamp() - make_interval(secs => ${windowSeconds}::double precision + 60))
        order by checked_minute limit ${PRUNE_ROWS} for update skip locked
      ))`.execute(this.#db);
    return Number(numAffectedRows ?? 0n);
  }
}

const hash = ({ scope, key }: Bucket): Buffer => createHash('sha256').update(`${scope}\0${key}`).digest();
