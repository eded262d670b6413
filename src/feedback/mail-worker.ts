import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { WorkerPool } from 'graphile-worker';
import { sql } from 'kysely';
import type { Pool } from 'pg';
import type { Database } from '../db/database.ts';
import { openQueue } from '../db/open-queue.ts';
import { openQueuePool } from '../db/queue-pool.ts';
import { RunningWork } from '../running-work.ts';
import { within } from '../within.ts';
import { deliverFeedback, type MailOptions, smtpSender } from './deliver.ts';
import { MAIL_TASK, type MailTaskPayload } from './outbox.ts';

export interface MailWorkerOptions extends MailOptions {
  readonly db: Database;
  readonly databaseUrl: string;
  readonly log: FastifyBaseLogger;
}

/** How often to look whether the queue is open, and to open it when the database is there. */
const LOOK_MS = 2_000;
/** How long stopping lets a mail that is being handed over go on before it is broken off. */
const STOP_PATIENCE_MS = 10_000;
/** How long stopping waits for what the database has to be told, as when it is away. */
const GIVE_BACK_MS = 5_000;
/** The one that listens, and one for the entry that is worked on. */
const CONNECTIONS = 2;

/**
 * Mails feedback from the queue, one piece at a time. It is apart from the worker of speech, so that a mail server that
 * hangs holds up no speech, and long speech no mail. What fails is tried again by graphile_worker, with waits that grow
 * from 3 seconds to 6 hours, for some days. Starts, and starts again, when the database can be reached.
 */
export class MailWorker {
  readonly #options: MailWorkerOptions;
  readonly #connections: Pool;
  readonly #running = new RunningWork();
  /** Fires when a mail that is being handed over is to be broken off. */
  readonly #breakingOff = new AbortController();
  readonly #stopped = new AbortController();
  #queue: WorkerPool | undefined;
  #loop: Promise<void> | undefined;
  #stop: Promise<void> | undefined;
  #isAway = false;

  constructor(options: MailWorkerOptions) {
    this.#options = options;
    this.#connections = openQueuePool(options.databaseUrl, { maxConnections: CONNECTIONS });
  }

  start(): void {
    this.#loop ??= this.#live();
  }

  /** Lets a mail that is being handed over go out, for some seconds; the rest stays in the queue. */
  stop(): Promise<void> {
    this.#stop ??= this.#end();
    return this.#stop;
  }

  async #end(): Promise<void> {
    this.#stopped.abort();
    await this.#loop;
    const closed = this.#queue?.gracefulShutdown();
    const breakOff = setTimeout(() => this.#breakingOff.abort(), STOP_PATIENCE_MS);
    await within(STOP_PATIENCE_MS + GIVE_BACK_MS, Promise.all([this.#running.idle(), closed]));
    clearTimeout(breakOff);
    await within(GIVE_BACK_MS, this.#connections.end());
  }

  async #live(): Promise<void> {
    const { db, log } = this.#options;
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      try {
        if (!this.#queue) await sql`select 1`.execute(db);
        if (!signal.aborted) this.#queue ??= this.#openQueue();
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) log.warn({ err: error }, 'the mail worker waits for the database');
        this.#isAway = true;
      }
      await sleep(LOOK_MS, undefined, { signal }).catch(() => {});
    }
  }

  #openQueue(): WorkerPool {
    const { db, log } = this.#options;
    const send = smtpSender(this.#options);
    return openQueue(
      {
        [MAIL_TASK]: (payload) => {
          const { feedbackId } = payload as MailTaskPayload;
          return this.#running.add(deliverFeedback(db, feedbackId, this.#options, send, this.#breakingOff.signal));
        },
      },
      {
        name: 'mail worker',
        concurrency: 1,
        connections: this.#connections,
        log,
        onShutdown: () => {
          this.#queue = undefined;
        },
      },
    );
  }
}
