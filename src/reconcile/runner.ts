import { randomUUID } from 'node:crypto';
import { addAbortListener, setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type NotNull, sql } from 'kysely';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { anyOf, secondsFromNow, secondsSince } from '../db/expressions.ts';
import { LEASE_SECONDS, LeaseRenewer } from '../db/lease.ts';
import { RunningWork } from '../lib/running-work.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Reconciler, TurnResult } from './reconciler.ts';

/** After this many intervals without a turn there was an outage, or no process was running. */
const PAUSE_INTERVALS = 3;
/** Leases of living processes outlast a shorter one, since they are renewed after a third of their time. */
const SHORTEST_PAUSE_SECONDS = LEASE_SECONDS / 2;

type TakenTurn = { readonly name: string; readonly owner: string };

interface LeasedTurn {
  /** Aborts when another process may have the turn. Work until then must be harmless beside that process. */
  readonly lost: AbortSignal;
  /** How long turns have been taken without a pause. */
  readonly steadyMs: number;
}

export class TurnLeases {
  readonly #db: Database;
  readonly #leases: LeaseRenewer<TakenTurn>;

  constructor(db: Database) {
    this.#db = db;
    this.#leases = new LeaseRenewer({
      seconds: LEASE_SECONDS,
      keyOf: ({ owner }) => owner,
      renew: (turns) => this.#renew(turns),
    });
  }

  /** Runs work while this process alone has the reconciler's turn. Returns undefined without the turn. */
  async run<T>(name: string, gapMs: number, work: (turn: LeasedTurn) => Promise<T>): Promise<T | undefined> {
    const turn = { name, owner: randomUUID() };
    const askedAt = performance.now();
    const taken = await this.#take(turn, gapMs);
    if (!taken) return undefined;
    testPoint('turn taken');
    const lost = new AbortController();
    const endLease = this.#leases.keep(turn, askedAt, () => lost.abort());
    try {
      return await work({ lost: lost.signal, steadyMs: taken.steadyMs });
    } finally {
      endLease();
      await this.#giveUp(turn).catch(() => {});
    }
  }

  async #take({ name, owner }: TakenTurn, gapMs: number): Promise<{ steadyMs: number } | undefined> {
    const gapSeconds = gapMs / 1000;
    const pauseSeconds = Math.max(gapSeconds * PAUSE_INTERVALS, SHORTEST_PAUSE_SECONDS);
    const { rows } = await sql<{ steadyMs: number }>`
      insert into reconciler (name, owner, lease_until)
      values (${name}, ${owner}, now() + make_interval(secs => ${LEASE_SECONDS}::double precision))
      on conflict (name) do update
        set started_at = now(), owner = excluded.owner, lease_until = excluded.lease_until,
            steady_since = case
              when ${gapSeconds}::double precision > 0
                and lease_has_ended(reconciler.started_at + make_interval(secs => ${pauseSeconds}::double precision),
                                    ${pauseSeconds}::double precision) then now()
              else least(reconciler.steady_since, now())
            end
        where (reconciler.lease_until is null
               or lease_has_ended(reconciler.lease_until, ${LEASE_SECONDS}::double precision))
          and lease_has_ended(reconciler.started_at + make_interval(secs => ${gapSeconds}::double precision),
                              ${gapSeconds}::double precision)
      returning extract(epoch from now() - steady_since)::double precision * 1000 as "steadyMs"`.execute(this.#db);
    return rows[0];
  }

  async #renew(turns: readonly TakenTurn[]): Promise<ReadonlySet<string>> {
    const rows = await this.#db
      .updateTable('reconciler')
      .set({ lease_until: secondsFromNow(LEASE_SECONDS) })
      .where('owner', '=', anyOf(turns.map(({ owner }) => owner)))
      .returning('owner')
      .$narrowType<{ owner: NotNull }>()
      .execute();
    return new Set(rows.map(({ owner }) => owner));
  }

  async #giveUp({ name, owner }: TakenTurn): Promise<void> {
    const turn = this.#db.updateTable('reconciler').where('name', '=', name).where('owner', '=', owner);
    await turn.set({ owner: null, lease_until: null }).execute();
  }
}

async function secondsSinceTurns(db: Database): Promise<Record<string, number>> {
  const rows = await db
    .selectFrom('reconciler')
    .select((eb) => ['name', secondsSince(eb.ref('started_at')).as('seconds')])
    .execute();
  return Object.fromEntries(rows.map(({ name, seconds }) => [name, seconds]));
}

interface RunnerOptions {
  readonly db: Database;
  readonly reconcilers: readonly Reconciler[];
  readonly intervalMs: number;
  readonly log: Logger;
  readonly onResult?: (name: string, count: number) => void;
}

const SLACK = 0.1;
const HURRY_RETRY_MS = 1_000;

/** Runs each reconciler in its own loop, so that a slow one delays no other. */
export class ReconcilerRunner {
  readonly #options: RunnerOptions;
  readonly #leases: TurnLeases;
  readonly #work = new RunningWork();
  readonly #stopping = new AbortController();
  readonly #madeAt = performance.now();
  readonly #failures = new Map<string, string>();
  readonly #hurries = new Map<string, AbortController>();
  #isDatabaseUnavailable = false;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#leases = new TurnLeases(options.db);
    setMaxListeners(0, this.#stopping.signal);
  }

  get intervals(): Record<string, number> {
    const { reconcilers, intervalMs } = this.#options;
    return Object.fromEntries(
      reconcilers.map(({ name, everyTurns = 1 }) => [name, (intervalMs * everyTurns) / 1000] as const),
    );
  }

  /** Seconds since the last turn of each reconciler in any process; without one, since this runner was made. */
  async turnAges(): Promise<Record<string, number>> {
    const ages = await secondsSinceTurns(this.#options.db);
    const ownAge = (performance.now() - this.#madeAt) / 1000;
    return Object.fromEntries(this.#options.reconcilers.map(({ name }) => [name, ages[name] ?? ownAge] as const));
  }

  start(): void {
    for (const reconciler of this.#options.reconcilers) this.#work.add(this.#loop(reconciler));
  }

  /** Takes the next turn of these reconcilers now, or as soon as no other process has it. */
  hurry(names: readonly string[]): void {
    for (const name of names) this.#hurries.get(name)?.abort();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const hurry of this.#hurries.values()) hurry.abort();
    await this.#work.idle();
  }

  async turn(): Promise<TurnResult[]> {
    const turns = this.#options.reconcilers.map((reconciler) => this.#work.add(this.#turn(reconciler, 0)));
    return Promise.all(turns);
  }

  async #loop(reconciler: Reconciler): Promise<void> {
    const { intervalMs } = this.#options;
    const gapMs = intervalMs * ((reconciler.everyTurns ?? 1) - SLACK);
    const begunAt = performance.now();
    let hasActed = false;
    let isHurried = false;
    let at = begunAt + intervalMs;
    let hurry = this.#expectHurry(reconciler);
    while (await this.#sleepUntil(at, hurry)) {
      if (hurry.aborted) {
        isHurried = true;
        hurry = this.#expectHurry(reconciler);
      }
      // Before its first turn, turns before the start of this process do not count: they may have left the work undone.
      const sinceMs = hasActed ? gapMs : Math.min(gapMs, performance.now() - begunAt);
      const result = await this.#turn(reconciler, isHurried ? 0 : sinceMs);
      hasActed ||= result.outcome === 'done';
      // Another process has the turn, and may have read before it was to hurry.
      isHurried &&= result.outcome === 'skipped';
      const now = performance.now();
      // A hurried turn ends before it was due.
      at = isHurried ? now + HURRY_RETRY_MS : Math.max(Math.min(at, now) + intervalMs, now);
    }
  }

  #expectHurry({ name }: Reconciler): AbortSignal {
    const controller = new AbortController();
    this.#hurries.set(name, controller);
    return controller.signal;
  }

  async #sleepUntil(at: number, hurry: AbortSignal): Promise<boolean> {
    await sleep(Math.max(0, at - performance.now()), undefined, { signal: hurry }).catch(() => {});
    return !this.#stopping.signal.aborted;
  }

  async #turn(reconciler: Reconciler, gapMs: number): Promise<TurnResult> {
    const { name } = reconciler;
    let result: TurnResult | undefined;
    try {
      result = await this.#leases.run(name, gapMs, (leased) => this.#run(reconciler, leased));
      this.#databaseAnswered();
    } catch (error) {
      this.#databaseFailed(error);
      return { name, outcome: 'failed', count: 0, error };
    }
    if (result) this.#options.onResult?.(name, result.count);
    return result ?? { name, outcome: 'skipped', count: 0 };
  }

  async #run(reconciler: Reconciler, { lost, steadyMs }: LeasedTurn): Promise<TurnResult> {
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
    // AbortSignal.any would leave an entry in the signal of the stop for each turn (Node.js 20).
    const ending = new AbortController();
    const listeners = [this.#stopping.signal, lost].map((signal) => addAbortListener(signal, () => ending.abort()));
    try {
      await reconciler.run({ signal: ending.signal, steadyMs, done, report });
    } catch (error) {
      this.#failed(name, error);
      return { name, outcome: 'failed', count, ...reported(), error };
    } finally {
      for (const listener of listeners) listener[Symbol.dispose]();
    }
    if (lost.aborted)
      this.#options.log.warn(
        { reconciler: name },
        'a reconciler lost its lease and may have stopped early. A later turn finishes its work; no action is needed',
      );
    if (this.#failures.delete(name))
      this.#options.log.info({ reconciler: name }, 'a reconciler that had failed works again; no action is needed');
    if (count > 0)
      this.#options.log.info(
        { reconciler: name, count },
        'a reconciler completed, released or deleted as many items as count says, such as payments, holds, jobs or old audio; no action is needed for them',
      );
    return { name, outcome: 'done', count, ...reported() };
  }

  #failed(name: string, error: unknown): void {
    const message = String(error);
    if (this.#failures.get(name) === message) return;
    this.#failures.set(name, message);
    this.#options.log.error(
      { reconciler: name, err: error },
      'a reconciler failed, so unfinished items such as payments or holds wait; it retries every turn. The same error is logged once: fix the cause in err unless a line says that the reconciler works again',
    );
  }

  #databaseFailed(error: unknown): void {
    if (!this.#isDatabaseUnavailable)
      this.#options.log.warn(
        { err: error },
        "reconcilers can't use the database and retry every turn. Fix the cause in err unless a line says that they can use it again",
      );
    this.#isDatabaseUnavailable = true;
  }

  #databaseAnswered(): void {
    if (this.#isDatabaseUnavailable)
      this.#options.log.info('reconcilers can use the database again; no action is needed');
    this.#isDatabaseUnavailable = false;
  }
}
