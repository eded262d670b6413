import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { WorkerPool } from 'graphile-worker';
import type { Pool } from 'pg';
import { openQueue } from '../db/open-queue.ts';
import { openQueuePool } from '../db/queue-pool.ts';
import { RunningWork } from '../running-work.ts';
import { within } from '../within.ts';
import { TASK, type TaskPayload } from './enqueue.ts';
import { beat, HEARTBEAT_MS, type Holdings, signOff } from './heartbeat.ts';
import { type JobRunnerOptions, runJob } from './run.ts';
import { takeOverJobs } from './take-over.ts';

export interface JobWorkerOptions extends JobRunnerOptions {
  readonly databaseUrl: string;
  /** Jobs that run at the same time. */
  readonly concurrency: number;
}

/** How long stopping lets the jobs that run go on before they are given back. */
const STOP_PATIENCE_MS = 10_000;
/** How long stopping waits for them to be given back, as when the database is away. */
const GIVE_BACK_MS = 5_000;
/** Connections beside one for each job: the one that listens, and one for jobs that have ended. */
const EXTRA_CONNECTIONS = 2;

/**
 * Runs the jobs of the queue in this process. As long as it can tell the database that it lives, it owns the jobs it
 * has claimed and names; with each heartbeat it also takes over the jobs that nobody works on. Starts, and starts again,
 * when the database can be reached.
 */
export class JobWorker {
  readonly #id = randomUUID();
  readonly #options: JobWorkerOptions;
  readonly #connections: Pool;
  readonly #running = new RunningWork();
  /** What the queue has handed over and is not done with yet. */
  readonly #inHand = new Set<{ readonly jobId: string; readonly entryId: string }>();
  /** Fires when the jobs that run are to be given back. */
  readonly #givingBack = new AbortController();
  readonly #stopped = new AbortController();
  #queue: WorkerPool | undefined;
  #loop: Promise<void> | undefined;
  #stop: Promise<void> | undefined;
  #isAway = false;

  constructor(options: JobWorkerOptions) {
    this.#options = options;
    const maxConnections = options.concurrency + EXTRA_CONNECTIONS;
    this.#connections = openQueuePool(options.databaseUrl, { maxConnections });
  }

  start(): void {
    this.#loop ??= this.#live();
  }

  /** Takes no more jobs, lets those that run end, and gives back what takes too long: those are queued again. */
  stop(): Promise<void> {
    this.#stop ??= this.#end();
    return this.#stop;
  }

  async #end(): Promise<void> {
    const closed = this.#queue?.gracefulShutdown();
    const giveBack = setTimeout(() => this.#givingBack.abort(), STOP_PATIENCE_MS);
    await within(STOP_PATIENCE_MS + GIVE_BACK_MS, Promise.all([this.#running.idle(), closed]));
    clearTimeout(giveBack);
    this.#stopped.abort();
    await this.#loop;
    await signOff(this.#options.db, this.#id).catch(() => {});
    await within(GIVE_BACK_MS, this.#connections.end());
  }

  async #live(): Promise<void> {
    const { db, log } = this.#options;
    const { signal } = this.#stopped;
    let since: string | undefined;
    while (!signal.aborted) {
      try {
        since = await beat(db, this.#id, this.#queue?.id, since === undefined ? undefined : this.#holdings(since));
        if (!this.#queue && !this.#stop) {
          this.#queue = this.#openQueue();
          continue;
        }
        const count = await takeOverJobs(db);
        if (count > 0) log.warn({ count }, 'jobs that nobody works on were queued again');
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) log.warn({ err: error }, 'the job worker waits for the database');
        this.#isAway = true;
      }
      await sleep(HEARTBEAT_MS, undefined, { signal }).catch(() => {});
    }
  }

  #holdings(since: string): Holdings {
    const inHand = [...this.#inHand];
    return { jobIds: inHand.map(({ jobId }) => jobId), entryIds: inHand.map(({ entryId }) => entryId), since };
  }

  async #run(jobId: string, entryId: string): Promise<void> {
    const item = { jobId, entryId };
    this.#inHand.add(item);
    try {
      await runJob(jobId, this.#id, this.#options, this.#givingBack.signal);
    } finally {
      this.#inHand.delete(item);
    }
  }

  #openQueue(): WorkerPool {
    const { concurrency, log } = this.#options;
    return openQueue(
      {
        [TASK]: (payload, { job: entry }) => this.#running.add(this.#run((payload as TaskPayload).jobId, entry.id)),
      },
      {
        name: 'job worker',
        concurrency,
        connections: this.#connections,
        log,
        onShutdown: () => {
          this.#queue = undefined;
        },
      },
    );
  }
}
