import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';
import { asynchronousCommit } from '../../db/expressions.ts';
import { GroupedStatement } from '../../db/hot-statements.ts';
import {
  type Bucket,
  bucketKey,
  pruneWindows,
  readSlots,
  type TakenSlots,
  takeSlots,
  type WindowSize,
} from '../../db/rate-window.ts';
import { isAccountId, selectCardAccount } from '../../ledger/accounts.ts';
import type { Metrics } from '../../observability/metrics.ts';

/** Kinds of buckets, as X-RateLimit-Scope names them (R48). */
export type Scope = Bucket['scope'] | 'edge';

export interface Slot {
  readonly scope: Scope;
  readonly allowed: boolean;
  readonly limit: number;
  readonly windowSeconds: number;
  readonly remaining: number;
  /** Whole seconds, rounded up, until a taken slot is free again; when refused, until a request can succeed. */
  readonly resetSeconds: number;
}

/** A slot that is taken once. Each method returns whether the request is allowed. */
export interface PendingSlot {
  take(): Promise<boolean>;
  /** Takes the address's slot, as for an account that does not exist (R13). */
  takeOfAddress(): Promise<boolean>;
  /** Records the slot that another statement has taken. */
  record(slot: Slot): boolean;
}

const slotOf = (scope: Scope, allowed: boolean, taken: number, resetSeconds: number, size: WindowSize): Slot => {
  const { max, windowSeconds } = size;
  return { scope, allowed, limit: max, windowSeconds, remaining: Math.max(max - taken, 0), resetSeconds };
};

interface WindowOptions extends WindowSize {
  readonly livemode?: boolean | undefined;
}

/**
 * The persistent rate limit, over all processes (R39): at most `max` slots per bucket in any period of the window's length,
 * by default 30 in 60 s.
 */
export class RollingWindow {
  readonly #db: Database;
  readonly #options: WindowOptions;
  readonly #metrics: Metrics;
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

  take(bucket: Bucket): Promise<Slot> {
    return this.#grouped.execute(bucket);
  }

  /** Takes a slot of the card account's bucket, or of the other one if the account does not exist (R13). */
  async takeForAccount(accountId: string | undefined, otherwise: Bucket): Promise<Slot> {
    if (accountId === undefined || !isAccountId(accountId)) return this.take(otherwise);
    const id = accountId.toLowerCase();
    const account = selectCardAccount(this.#db, id, this.#options.livemode ?? null);
    const query = takeSlots<TakenSlots>(
      sql`(
        select case when known then 'account' else ${otherwise.scope}::text end as scope,
               case when known then ${bucketKey({ scope: 'account', key: id })}::bytea
                    else ${bucketKey(otherwise)}::bytea end as key, 1 as attempts
        from (select exists ${account} as known) requested
        where ${WITHOUT_WAITING}
      ) bucket`,
      this.#options,
    );
    const { rows } = await query.execute(this.#db);
    return this.slotOf(rows[0] as TakenSlots, 1);
  }

  refuse({ scope }: Bucket, resetSeconds: number): Slot {
    this.#metrics.rateLimitRefused(scope);
    return slotOf(scope, false, this.max, resetSeconds, this.#options);
  }

  get max(): number {
    return this.#options.max;
  }

  get size(): WindowSize {
    return this.#options;
  }

  async read(bucket: Bucket): Promise<Slot> {
    const { taken, resetSeconds } = await readSlots(this.#db, bucket, this.#options);
    return slotOf(bucket.scope, taken < this.max, taken, resetSeconds, this.#options);
  }

  async #takeOfBuckets(buckets: readonly Bucket[]): Promise<Slot[]> {
    const attempts = new Map<string, { readonly scope: Bucket['scope']; count: number }>();
    const asked = buckets.map((bucket) => {
      const key = bucketKey(bucket).toString('hex');
      const ofBucket = attempts.get(key) ?? { scope: bucket.scope, count: 0 };
      attempts.set(key, ofBucket);
      ofBucket.count += 1;
      return { key, turn: ofBucket.count };
    });
    const all = [...attempts.values()];
    const query = takeSlots<TakenSlots & { readonly key: Buffer }>(
      sql`(
        select decode(key, 'hex') as key, scope, attempts
        from unnest(${[...attempts.keys()]}::text[], ${all.map(({ scope }) => scope)}::text[],
                    ${all.map(({ count }) => count)}::int[]) as asked (key, scope, attempts)
        where ${WITHOUT_WAITING}
      ) bucket`,
      this.#options,
    );
    const { rows } = await query.execute(this.#db);
    const found = new Map(rows.map((row) => [row.key.toString('hex'), row]));
    return asked.map(({ key, turn }) => this.slotOf(found.get(key) as TakenSlots, turn));
  }

  /** The result of one attempt of a statement. @param turn its place among the attempts on the bucket, from 1 */
  slotOf({ scope, granted, taken, reset_seconds }: TakenSlots, turn: number): Slot {
    const allowed = turn <= granted;
    if (!allowed) this.#metrics.rateLimitRefused(scope);
    return slotOf(scope, allowed, allowed ? taken - granted + turn : taken, reset_seconds, this.#options);
  }

  async prune(windowSeconds = this.#options.windowSeconds): Promise<number> {
    return pruneWindows(this.#db, windowSeconds);
  }
}

/** A crash of the database loses the last moment's counts. */
const WITHOUT_WAITING = sql`${asynchronousCommit} = 'off'`;

const RETRY_SECONDS = 1;

interface BegunAttempt {
  readonly outcome: 'begun';
  readonly slot: Slot;
  succeed(): void;
  fail(): Promise<Slot | undefined>;
}

/** Counts only failed attempts. Running ones count as failed, so that both together never exceed the window. */
export class AttemptLimit {
  readonly #window: RollingWindow;
  readonly #underWay = new Map<string, number>();

  constructor(window: RollingWindow) {
    this.#window = window;
  }

  async begin(bucket: Bucket): Promise<BegunAttempt | { readonly outcome: 'refused'; readonly slot: Slot }> {
    const key = `${bucket.scope} ${bucket.key}`;
    // An earlier attempt counts in `place` while it runs, and in the read below once it has failed.
    const place = (this.#underWay.get(key) ?? 0) + 1;
    const refused = (seconds: number) => ({ outcome: 'refused', slot: this.#window.refuse(bucket, seconds) }) as const;
    if (place > this.#window.max) return refused(RETRY_SECONDS);
    this.#underWay.set(key, place);
    let isOpen = true;
    const end = () => {
      if (!isOpen) return;
      isOpen = false;
      const others = (this.#underWay.get(key) ?? 0) - 1;
      if (others > 0) this.#underWay.set(key, others);
      else this.#underWay.delete(key);
    };
    try {
      const slot = await this.#window.read(bucket);
      if (place > slot.remaining) {
        end();
        return refused(slot.allowed ? RETRY_SECONDS : slot.resetSeconds);
      }
      return {
        outcome: 'begun',
        slot,
        succeed: end,
        fail: async () => (isOpen ? this.#window.take(bucket).finally(end) : undefined),
      };
    } catch (error) {
      end();
      throw error;
    }
  }
}
