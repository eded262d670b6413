import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Role } from '../settings/role.ts';
import { tell } from './messages.ts';

/** A process that lived for so long did not die of its start. */
const STEADY_MS = 60_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;

/** A process ended before all of them listened for the first time. It has told why itself. */
export class StartFailed extends Error {
  readonly exitCode: number;

  constructor(exitCode: number) {
    super('a gateway process ended before it listened');
    this.exitCode = exitCode;
  }
}

export interface FleetOptions {
  readonly count: number;
  readonly role: Role;
  readonly log: Logger;
}

/**
 * The gateway processes on one port. One that ends unasked is replaced: at once, and with growing pauses while each one
 * ends within its first minute.
 */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #stopping = new AbortController();
  readonly #listening = new Set<Worker>();
  readonly #lives: Promise<void>[] = [];
  /** How a process ended that was told to stop, if not well. */
  #badEnd: string | undefined;

  constructor(options: FleetOptions) {
    this.#options = options;
    cluster.on('listening', (worker) => this.#listens(worker));
    cluster.on('exit', (worker) => this.#listening.delete(worker));
  }

  /** Processes that take requests. */
  get listening(): readonly Worker[] {
    return [...this.#listening];
  }

  /**
   * Resolves when all of them listen. The first one starts alone, so that what keeps it from that is told once. It is the
   * one that runs jobs, if the role is to: JOB_CONCURRENCY is for all of them together.
   */
  async start(): Promise<void> {
    const { count, role } = this.#options;
    await this.#add(role);
    await Promise.all(Array.from({ length: count - 1 }, () => this.#add('web')));
  }

  /** Has all of them finish what they are working on. Throws if one did not end well. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const worker of this.#listening) tell(worker, { order: 'stop' });
    await Promise.all(this.#lives);
    if (this.#badEnd) throw new Error(`a gateway process ended with ${this.#badEnd} when it was to stop`);
  }

  /** Ends all of them at once. */
  kill(): void {
    for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL');
  }

  #listens(worker: Worker): void {
    this.#listening.add(worker);
    // Before it listened, it may not have heard it.
    if (this.#stopping.signal.aborted) tell(worker, { order: 'stop' });
  }

  /** Resolves when the process listens; it and those that take its place live until they are stopped. */
  #add(role: Role): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#lives.push(this.#live(role, resolve, reject));
    });
  }

  async #live(role: Role, started: () => void, failed: (reason: StartFailed) => void): Promise<void> {
    const { log } = this.#options;
    const { signal } = this.#stopping;
    let hasStarted = false;
    let quickEnds = 0;
    while (!signal.aborted) {
      const forkedAt = performance.now();
      const worker = fork(role);
      worker.once('listening', () => {
        hasStarted = true;
        started();
      });
      const [code, killedBy] = (await once(worker, 'exit')) as [number | null, string | null];
      if (signal.aborted && code !== 0) this.#badEnd = killedBy ?? `${code}`;
      if (signal.aborted || !hasStarted) return failed(new StartFailed(code ?? 1));
      quickEnds = performance.now() - forkedAt < STEADY_MS ? quickEnds + 1 : 0;
      const pauseMs = pauseAfter(quickEnds);
      const { pid } = worker.process;
      log.error(
        { ended: pid, code, signal: killedBy, pauseMs },
        'a gateway process ended; another one takes its place',
      );
      await sleep(pauseMs, undefined, { signal }).catch(() => {});
    }
  }
}

const pauseAfter = (quickEnds: number): number =>
  quickEnds < 2 ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (quickEnds - 2));

function fork(role: Role): Worker {
  // `advanced` keeps what JSON has not, such as NaN.
  cluster.setupPrimary({ args: role === 'all' ? [] : [`--role=${role}`], serialization: 'advanced' });
  return cluster.fork();
}
