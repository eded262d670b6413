import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { RunningWork } from '../lib/running-work.ts';
import { secondsSinceTurns, withLease } from './lease.ts';
import type { Reconciler, TurnResult } from './reconciler.ts';

export interface RunnerOptions {
  readonly db: Database;
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
  readonly #madeAt = performance.now();
  /** What each failing reconciler failed with, so that an outage is logged once and not each turn. */
  readonly #failures = new Map<string, string>();
  #databaseIsAway = false;

  constructor(options: RunnerOptions) {
    this.#options = options;
    // Each loop's pause listens.
    setMaxListeners(0, this.#stopping.signal);
  }

  /** Seconds between two turns, by reconciler. */
  get intervals(): Record<string, number> {
    const { reconcilers, intervalMs } = this.#options;
    return Object.fromEntries(
      reconcilers.map(({ name, everyTurns = 1 }) => [name, (intervalMs * everyTurns) / 1000] as const),
    );
  }

  /** Seconds since the last turn of each began in any process; of one that never had any, since this runner was made. */
  async turnAges(): Promise<Record<string, number>> {
    const ages = await secondsSinceTurns(this.#options.db);
    const ownAge = (performance.now() - this.#madeAt) / 1000;
    return Object.fromEntries(this.#options.reconcilers.map(({ name }) => [name, ages[name] ?? ownAge] as const));
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
    let hasActed = false;
    for (let at = begunAt + intervalMs; await this.#sleepUntil(at); at = Math.max(at + intervalMs, performance.now())) {
      // Before its first turn, what a replica did before this process began doesn't count: it may be what we repair.
      const result = await this.#turn(reconciler, hasActed ? gapMs : Math.min(gapMs, performance.now() - begunAt));
      hasActed ||= result.outcome === 'done';
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
      result = await withLease(this.#options.db, name, gapMs, (lost) => this.#run(reconciler, lost));
      this.#databaseAnswered();
    } catch (error) {
      this.#databaseFailed(error);
      return { name, outcome: 'failed', count: 0, error };
    }
    if (result) this.#options.onResult?.(name, result.count);
    return result ?? { name, outcome: 'skipped', count: 0 };
  }

  async #run(reconciler: Reconciler, lost: AbortSignal): Promise<TurnResult> {
    const { name } = reconciler;
    let count = 0;
    const done = (more: number) => {
      count += more;
    };
    const problems: string[] = [];
    const report = (problem: string) => {
      problems.push(problem);
      this.#options.log.error({ reconciler: name }, problem);
    };
    const reported = () => (problems.length > 0 ? { problems } : {});
    try {
      await reconciler.run({ signal: AbortSignal.any([this.#stopping.signal, lost]), done, report });
    } catch (error) {
      this.#failed(name, error);
      return { name, outcome: 'failed', count, ...reported(), error };
    }
    if (lost.aborted) this.#options.log.warn({ reconciler: name }, 'a reconciler lost its turn to another process');
    if (this.#failures.delete(name)) this.#options.log.info({ reconciler: name }, 'a reconciler works again');
    if (count > 0) this.#options.log.info({ reconciler: name, count }, 'a reconciler did its work');
    return { name, outcome: 'done', count, ...reported() };
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
