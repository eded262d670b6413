import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { WorkerEvents, WorkerPool } from 'graphile-worker';
import type { Pool } from 'pg';
import { RunningWork } from '../lib/running-work.ts';
import { within } from '../lib/within.ts';
import { openQueuePool } from './database.ts';
import { READ_ONLY_FIX } from './database-errors.ts';

interface QueueWork {
  readonly name: string;
  readonly task: string;
  run(payload: unknown, signal: AbortSignal): Promise<void>;
}

export interface QueueWorkerOptions {
  readonly databaseUrl: string;
  readonly namedStatements: boolean;
  readonly concurrency: number;
  readonly maxConnections: number;
  readonly log: FastifyBaseLogger;
  /** At a stop: how long running work may continue before its signal aborts. */
  readonly stopTimeoutMs?: number;
}

const OPEN_AGAIN_MS = 2_000;
const STOP_TIMEOUT_MS = 10_000;
/** At a stop: how long aborted work may wait for the database. */
const GIVE_BACK_MS = 5_000;
/** Only graphile_worker's message text is logged, because its details contain the payload. */
const LEVELS = { error: 'error', warning: 'warn', info: 'debug', debug: 'trace' } as const;

/**
 * Runs the queue entries of one task. Reopens the queue after graphile_worker shut down, as after a failed write, and after
 * a failed read, because graphile_worker 0.17 keeps a failure of its first statement for ever.
 */
export class QueueWorker {
  readonly #work: QueueWork;
  readonly #options: QueueWorkerOptions;
  readonly #connections: Pool;
  readonly #running = new RunningWork();
  readonly #givingUp = new AbortController();
  readonly #stopped = new AbortController();
  #queue: WorkerPool | undefined;
  /** The queue that could not be read the last time. */
  #unread: WorkerPool | undefined;
  #isFailing = false;
  #loop: Promise<void> | undefined;
  #stop: Promise<void> | undefined;

  constructor(work: QueueWork, options: QueueWorkerOptions) {
    this.#work = work;
    this.#options = options;
    this.#connections = openQueuePool(options.databaseUrl, { maxConnections: options.maxConnections });
  }

  start(): void {
    this.#loop ??= this.#keepOpen();
  }

  stop(): Promise<void> {
    this.#stop ??= this.#end();
    return this.#stop;
  }

  async #end(): Promise<void> {
    const { stopTimeoutMs = STOP_TIMEOUT_MS } = this.#options;
    this.#stopped.abort();
    await this.#loop;
    const closed = this.#queue?.gracefulShutdown();
    const giveUp = setTimeout(() => this.#givingUp.abort(), stopTimeoutMs);
    await within(stopTimeoutMs + GIVE_BACK_MS, Promise.all([this.#running.idle(), closed]));
    clearTimeout(giveUp);
    await within(GIVE_BACK_MS, this.#connections.end());
  }

  async #keepOpen(): Promise<void> {
    const { signal } = this.#stopped;
    let isDatabaseUnavailable = false;
    while (!signal.aborted) {
      try {
        if (this.#queue === this.#unread) {
          await this.#requireWrites();
          this.#closeQueue();
        }
        // A gateway that only serves requests doesn't load it.
        this.#queue ??= this.#openQueue(await import('graphile-worker'));
        isDatabaseUnavailable = false;
      } catch (error) {
        if (!isDatabaseUnavailable)
          this.#options.log.warn(
            { err: error },
            `the ${this.#work.name} can't open its queue in the database, so its work waits; it retries every 2 s. Fix the cause in err if this lasts`,
          );
        isDatabaseUnavailable = true;
      }
      await sleep(OPEN_AGAIN_MS, undefined, { signal }).catch(() => {});
    }
  }

  /** Otherwise each queue that opens would print the errors of all its workers. */
  async #requireWrites(): Promise<void> {
    const { rows } = await this.#connections.query("select current_setting('transaction_read_only') as value");
    if (rows[0].value === 'on') throw new Error(`the database is read-only. ${READ_ONLY_FIX}`);
  }

  /** Its running work ends by itself. */
  #closeQueue(): void {
    Promise.resolve(this.#queue?.gracefulShutdown()).catch(() => {});
    this.#queue = undefined;
    this.#unread = undefined;
  }

  #openQueue({ Logger, runTaskList }: typeof import('graphile-worker')): WorkerPool {
    const { concurrency, namedStatements, log } = this.#options;
    const { name, task } = this.#work;
    const events: WorkerEvents = new EventEmitter();
    events.once('pool:gracefulShutdown', ({ workerPool }) => {
      // graphile_worker sets an exit code when its schema has changed. A new queue opens on the new schema.
      process.exitCode = undefined;
      if (this.#queue === workerPool) this.#queue = undefined;
    });
    events.on('worker:getJob:error', ({ error }) => {
      if (!this.#isFailing)
        log.warn(
          { err: error },
          `the ${name} can't read its queue, so its work waits; it retries by itself. Fix the cause in err if this lasts`,
        );
      this.#isFailing = true;
      this.#unread = queue;
    });
    for (const event of ['worker:getJob:empty', 'job:start'] as const) {
      events.on(event, () => {
        this.#isFailing = false;
        if (this.#unread === queue) this.#unread = undefined;
      });
    }
    const queue = runTaskList(
      {
        concurrency,
        noHandleSignals: true,
        events,
        logger: new Logger(() => (level, message) => log[LEVELS[level as keyof typeof LEVELS]](`queue: ${message}`)),
        // No batches: a failed batch write is an unhandled rejection.
        preset: { worker: { completeJobBatchDelay: 0, failJobBatchDelay: 0, preparedStatements: namedStatements } },
      },
      { [task]: (payload) => this.#running.add(this.#work.run(payload, this.#givingUp.signal)) },
      this.#connections,
    );
    queue.promise.catch((error) =>
      log.warn(
        { err: error },
        `the queue of the ${name} stopped, and the service opens it again. No work is lost. Fix the cause in err if this repeats`,
      ),
    );
    return queue;
  }
}
