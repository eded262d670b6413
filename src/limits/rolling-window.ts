import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { GroupedStatement } from '../db/grouped-statement.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';
import { cardAccountExists, isAccountId } from '../ledger/accounts.ts';
import type { Gate } from '../ledger/card-holds.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Scope, Slot } from './slot.ts';
import { SLOT_COLUMNS, type SlotRow, slotOf, takeSlots, type WindowSize } from './take-slots.ts';

/** A bucket of the persistent window. Its key is stored hashed only. */
export interface Bucket {
  readonly scope: Exclude<Scope, 'edge'>;
  readonly key: string;
}

export interface WindowOptions extends WindowSize {
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
  /** For the statement that debits accounts: takes a slot of each one's own bucket, and lets through what has got one. */
  readonly gate: Gate<SlotRow, Slot> = {
    keyOf: (accountId) => hash({ scope: 'account', key: accountId }),
    pass: (payers) =>
      takeSlots(fragment`(select gate_key as key, 'account' as scope, attempts from ${payers}) bucket`, this.#options),
    columns: SLOT_COLUMNS,
    read: (row, turn) => this.#tell(row, turn),
  };
  readonly #grouped = new GroupedStatement({
    run: (buckets: readonly Bucket[]) => this.#takeOfBuckets(buckets),
    keyOf: (bucket) => bucket,
  });

  /** @param db never a transaction: taking a slot commits by itself, without waiting for the disk */
  constructor(db: Database, options: WindowOptions, metrics: Metrics) {
    this.#db = db;
    this.#options = options;
    this.#metrics = metrics;
  }

  /** Takes a slot of the bucket, or tells when there will be one. */
  take(bucket: Bucket): Promise<Slot> {
    return this.#grouped.execute(bucket);
  }

  /**
   * Takes a slot of the card account's own bucket if that account exists, otherwise one of the other bucket, so that
   * inventing account ids opens no new buckets (R13).
   */
  async takeForAccount(accountId: string | undefined, otherwise: Bucket): Promise<Slot> {
    if (accountId === undefined || !isAccountId(accountId)) return this.take(otherwise);
    const id = accountId.toLowerCase();
    const [row] = await this.#take(fragment`(
      select case when known then 'account' else ${otherwise.scope}::text end as scope,
             case when known then ${this.gate.keyOf(id)}::bytea else ${hash(otherwise)}::bytea end as key, 1 as attempts
      from (select ${cardAccountExists(id, this.#options.livemode ?? null)} as known) requested
      where ${WITHOUT_WAITING}
    ) bucket`);
    return this.#tell(row as SlotRow, 1);
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

  /** One statement for what is asked at the same moment. */
  async #takeOfBuckets(buckets: readonly Bucket[]): Promise<Slot[]> {
    const attempts = new Map<string, { readonly scope: Bucket['scope']; count: number }>();
    const asked = buckets.map((bucket) => {
      const key = hash(bucket).toString('hex');
      const ofBucket = attempts.get(key) ?? { scope: bucket.scope, count: 0 };
      attempts.set(key, ofBucket);
      ofBucket.count += 1;
      return { key, turn: ofBucket.count };
    });
    const all = [...attempts.values()];
    const rows = await this.#take(fragment`(
      select decode(key, 'hex') as key, scope, attempts
      from unnest(${[...attempts.keys()]}::text[], ${all.map(({ scope }) => scope)}::text[],
                  ${all.map(({ count }) => count)}::int[]) as asked (key, scope, attempts)
      where ${WITHOUT_WAITING}
    ) bucket`);
    const found = new Map(rows.map((row) => [row.key.toString('hex'), row]));
    return asked.map(({ key, turn }) => this.#tell(found.get(key) as SlotRow, turn));
  }

  /** @param buckets as of `takeSlots` */
  async #take(buckets: Fragment): Promise<(SlotRow & { readonly key: Buffer })[]> {
    const { rows } = await statement<SlotRow & { readonly key: Buffer }>`${takeSlots(buckets, this.#options)}`.execute(
      this.#db,
    );
    return rows;
  }

  /** Counts a refusal. @param turn as of `slotOf` */
  #tell(row: SlotRow, turn: number): Slot {
    const slot = slotOf(row, turn, this.#options);
    if (!slot.allowed) this.#metrics.rateLimitRefused(slot.scope);
    return slot;
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

/** What a crash of the database may lose is the last moment's counts, so nobody waits until they are on disk. */
const WITHOUT_WAITING = fragment`set_config('synchronous_commit', 'off', true) = 'off'`;

const hash = ({ scope, key }: Bucket): Buffer => createHash('sha256').update(`${scope}\0${key}`).digest();
