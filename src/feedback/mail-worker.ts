import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import { runTaskList, type WorkerPool } from 'graphile-worker';
import type { Pool } from 'pg';
import type { Database } from '../db/database.ts';
import { queueLogger } from '../db/queue-logger.ts';
import { openQueuePool } from '../db/queue-pool.ts';
import { deliverFeedback, type MailOptions, smtpSender } from './deliver.ts';
import { MAIL_TASK, type MailTaskPayload, requeueLostMail } from './outbox.ts';

export interface MailWorkerOptions extends MailOptions {
  readonly db: Database;
  readonly databaseUrl: string;
  /** How often to look for mail that the queue has lost. */
  readonly sweepIntervalMs: number;
  readonly log: FastifyBaseLogger;
}

/** How long stopping lets a mail that is being handed over go on before it is broken off. */
const STOP_PATIENCE_MS = 10_000;
/** How long stopping waits for the queue to be told, as when the database is away. */
const GIVE_BACK_MS = 5_000;
/** The one that listens, and one for the entry that is worked on. */
const CONNECTIONS = 2;

/**
 * Mails feedback from the queue, one piece at a time. It is a queue of its own beside that of speech, so that a mail
 * server that hangs holds up no speech, and long speech no mail. What fails is tried again by graphile_worker, with waits
 * that grow from 3 seconds to 6 hours, for some days. Starts, and starts again, when the database can be reached.
 */
export class MailWorker {
  readonly #options: MailWorkerOptions;
  readonly #connections: Pool;
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
    await Promise.race([
      this.#queue?.gracefulShutdown(),
      sleep(STOP_PATIENCE_MS + GIVE_BACK_MS, undefined, { ref: false }),
    ]);
    await this.#connections.end();
  }

  async #live(): Promise<void> {
    const { db, sweepIntervalMs, log } = this.#options;
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      try {
        const count = await requeueLostMail(db);
        if (count > 0) log.warn({ count }, 'feedback that the queue had lost was queued again');
        if (!signal.aborted) this.#queue ??= this.#openQueue();
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) log.warn({ err: error }, 'the mail worker waits for the database');
        this.#isAway = true;
      }
      await sleep(sweepIntervalMs, undefined, { signal }).catch(() => {});
    }
  }

  #openQueue(): WorkerPool {
    const { db, log } = this.#options;
    const send = smtpSender(this.#options);
    const queue = runTaskList(
      {
        concurrency: 1,
        noHandleSignals: true,
        gracefulShutdownAbortTimeout: STOP_PATIENCE_MS,
        logger: queueLogger(log),
        preset: { worker: { completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
      },
      {
        [MAIL_TASK]: (payload, { abortSignal }) =>
          deliverFeedback(db, (payload as MailTaskPayload).feedbackId, this.#options, send, abortSignal),
      },
      this.#connections,
    );
    // When it gives up, as after a long outage, the next sweep opens another one.
    const forget = () => {
      this.#queue = undefined;
    };
    queue.promise.then(forget, forget);
    return queue;
  }
}
