import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { WorkerPool } from 'graphile-worker';
import type { Pool } from 'pg';
import { openQueuePool } from '../db/queue-pool.ts';
import { RunningWork } from '../lib/running-work.ts';
import { within } from '../lib/within.ts';
import { openQueue } from './open-queue.ts';

/** What a worker works on, and what it does beside that. */
export interface QueueWork {
  /** Who works, for the log. */
  readonly name: string;
  readonly task: string;
  /**
   * Works on one entry.
   * @param signal fires when the worker stops and this takes too long
   */
  run(payload: unknown, entryId: string, signal: AbortSignal): Promise<void>;
  /**
   * Done every BEAT_MS, also before the queue is open. Throws while the database is away.
   * @param queuePool what graphile_worker calls the open queue
   */
  beat(queuePool: string | undefined): Promise<void>;
  /** Done after each beat, except one that finds the queue to be opened. */
  afterBeat?(): Promise<void>;
  /** Done when everything has ended. Who signs off beats until then; the beats of others end before the queue does. */
  signOff?(): Promise<void>;
}

export interface QueueWorkerOptions {
  readonly databaseUrl: string;
  /** False where a pooler between knows no names of statements. */
  readonly namedStatements: boolean;
  /** Entries that are worked on at the same time. */
  readonly concurrency: number;
  readonly maxConnections: number;
  readonly log: FastifyBaseLogger;
}

export const BEAT_MS = 2_000;
/** How long stopping lets the work that runs go on before its signal fires. */
const STOP_PATIENCE_MS = 10_000;
/** How long stopping waits for what the database has to be told then, as when it is away. */
const GIVE_BACK_MS = 5_000;

/**
 * Works on the entries of one task in this process. The queue is opened when the database can be reached, and again
 * after it has shut itself down.
 */
export class QueueWorker {
  readonly #work: QueueWork;
  readonly #options: QueueWorkerOptions;
  readonly #connections: Pool;
  readonly #running = new RunningWork();
  /** Fires when the work that runs is to be given up. */
  readonly #givingUp = new AbortController();
  readonly #stopped = new AbortController();
  #queue: WorkerPool | undefined;
  #loop: Promise<void> | undefined;
  #stop: Promise<void> | undefined;
  #isAway = false;

  constructor(work: QueueWork, options: QueueWorkerOptions) {
    this.#work = work;
    this.#options = options;
    this.#connections = openQueuePool(options.databaseUrl, { maxConnections: options.maxConnections });
  }

  start(): void {
    this.#loop ??= this.#live();
  }

  /** Takes no more entries, and lets the work that runs end, for some seconds. */
  stop(): Promise<void> {
    this.#stop ??= this.#end();
    return this.#stop;
  }

  async #end(): Promise<void> {
    if (!this.#work.signOff) await this.#endBeats();
    const closed = this.#queue?.gracefulShutdown();
    const giveUp = setTimeout(() => this.#givingUp.abort(), STOP_PATIENCE_MS);
    await within(STOP_PATIENCE_MS + GIVE_BACK_MS, Promise.all([this.#running.idle(), closed]));
    clearTimeout(giveUp);
    await this.#endBeats();
    await this.#work.signOff?.().catch(() => {});
    await within(GIVE_BACK_MS, this.#connections.end());
  }

  async #endBeats(): Promise<void> {
    this.#stopped.abort();
    await this.#loop;
  }

  async #live(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      try {
        await this.#work.beat(this.#queue?.id);
        if (!this.#queue && !this.#stop) {
          this.#queue = this.#openQueue();
          continue;
        }
        await this.#work.afterBeat?.();
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) this.#options.log.warn({ err: error }, `the ${this.#work.name} waits for the database`);
        this.#isAway = true;
      }
      await sleep(BEAT_MS, undefined, { signal }).catch(() => {});
    }
  }

  #openQueue(): WorkerPool {
    const { concurrency, namedStatements, log } = this.#options;
    const { name, task } = this.#work;
    return openQueue(
      {
        [task]: (payload, { job: entry }) =>
          this.#running.add(this.#work.run(payload, entry.id, this.#givingUp.signal)),
      },
      {
        name,
        concurrency,
        connections: this.#connections,
        namedStatements,
        log,
        onShutdown: () => {
          this.#queue = undefined;
        },
      },
    );
  }
}
