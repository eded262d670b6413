import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { RunningWork } from '../running-work.ts';
import { withLock } from './lock.ts';
import type { Reconciler, TurnResult } from './reconciler.ts';

export interface RunnerOptions {
  readonly db: Database;
  readonly databaseUrl: string;
  readonly reconcilers: readonly Reconciler[];
  /** RECONCILE_INTERVAL_MS. */
  readonly intervalMs: number;
  readonly log: Logger;
  /** Told what each turn has done, also when it failed after that; for the metrics. */
  readonly onResult?: (name: string, count: number) => void;
}

/** How much earlier than its time a turn may begin, in intervals: timers and round trips vary. */
const SLACK = 0.1;

/**
 * Runs reconcilers every interval, each in a loop of its own, so that a slow one keeps no other waiting. Every replica
 * runs them, but for each the database lets one replica act at a time, and once an interval.
 */
export class ReconcilerRunner {
  readonly #options: RunnerOptions;
  readonly #work = new RunningWork();
  readonly #stopping = new AbortController();
  /** What each failing reconciler failed with, so that an outage is logged once and not each turn. */
  readonly #failures = new Map<string, string>();
  #databaseIsAway = false;

  constructor(options: RunnerOptions) {
    this.#options = options;
  }

  /** Begins; the first turns are one interval from now. */
  start(): void {
    for (const reconciler of this.#options.reconcilers) this.#work.add(this.#loop(reconciler));
  }

  /** Begins no more turns, and resolves when those that run have ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#work.idle();
  }

  /** Runs every reconciler now, however recently it ran, unless another process is at it. */
  async turn(): Promise<TurnResult[]> {
    const turns = this.#options.reconcilers.map((reconciler) => this.#work.add(this.#turn(reconciler, 0)));
    return Promise.all(turns);
  }

  async #loop(reconciler: Reconciler): Promise<void> {
    const { intervalMs } = this.#options;
    const gapMs = intervalMs * ((reconciler.everyTurns ?? 1) - SLACK);
    const begunAt = performance.now();
    let isFirst = true;
    for (let at = begunAt + intervalMs; await this.#sleepUntil(at); at = Math.max(at + intervalMs, performance.now())) {
      // In the first turn, what a replica did before this process began doesn't count: it may be what we repair.
      const result = await this.#turn(reconciler, isFirst ? Math.min(gapMs, performance.now() - begunAt) : gapMs);
      isFirst &&= result.outcome === 'failed';
    }
  }

  async #sleepUntil(at: number): Promise<boolean> {
    const { signal } = this.#stopping;
    await sleep(Math.max(0, at - performance.now()), undefined, { signal }).catch(() => {});
    return !signal.aborted;
  }

  async #turn(reconciler: Reconciler, gapMs: number): Promise<TurnResult> {
    const { name } = reconciler;
    let result: TurnResult | undefined;
    try {
      if (await this.#claim(name, gapMs)) {
        result = await withLock(this.#options.databaseUrl, name, () => this.#run(reconciler));
      }
      this.#databaseAnswered();
    } catch (error) {
      this.#databaseFailed(error);
      return { name, outcome: 'failed', count: 0, error };
    }
    if (result) this.#options.onResult?.(name, result.count);
    return result ?? { name, outcome: 'skipped', count: 0 };
  }

  /** Records the turn's beginning, unless the last one began less than the gap ago; tells whether it did. */
  async #claim(name: string, gapMs: number): Promise<boolean> {
    const { rows } = await sql`
      insert into reconciler (name) values (${name})
      on conflict (name) do update set started_at = now()
        where reconciler.started_at <= now() - make_interval(secs => ${gapMs / 1000}::double precision)
      returning name`.execute(this.#options.db);
    return rows.length > 0;
  }

  async #run(reconciler: Reconciler): Promise<TurnResult> {
    const { name } = reconciler;
    let count = 0;
    const done = (more: number) => {
      count += more;
    };
    try {
      await reconciler.run({ signal: this.#stopping.signal, done });
    } catch (error) {
      this.#failed(name, error);
      return { name, outcome: 'failed', count, error };
    }
    if (this.#failures.delete(name)) this.#options.log.info({ reconciler: name }, 'a reconciler works again');
    if (count > 0) this.#options.log.info({ reconciler: name, count }, 'a reconciler did its work');
    return { name, outcome: 'done', count };
  }

  #failed(name: string, error: unknown): void {
    const message = String(error);
    if (this.#failures.get(name) === message) return;
    this.#failures.set(name, message);
    this.#options.log.error({ reconciler: name, err: error }, 'a reconciler failed; it goes on in its next turn');
  }

  #databaseFailed(error: unknown): void {
    if (!this.#databaseIsAway) this.#options.log.warn({ err: error }, 'reconcilers wait for the database');
    this.#databaseIsAway = true;
  }

  #databaseAnswered(): void {
    if (this.#databaseIsAway) this.#options.log.info('reconcilers have the database again');
    this.#databaseIsAway = false;
  }
}
