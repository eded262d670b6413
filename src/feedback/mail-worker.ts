import type { FastifyBaseLogger } from 'fastify';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { QueueWorker } from '../queue/queue-worker.ts';
import { deliverFeedback, type MailOptions, smtpSender } from './deliver.ts';
import { MAIL_TASK, type MailTaskPayload } from './outbox.ts';

export interface MailWorkerOptions extends MailOptions {
  readonly db: Database;
  readonly databaseUrl: string;
  /** False where a pooler between knows no names of statements. */
  readonly namedStatements: boolean;
  readonly log: FastifyBaseLogger;
}

/** The one that listens, and one for the entry that is worked on. */
const CONNECTIONS = 2;

/**
 * Mails feedback from the queue, one piece at a time. It is apart from the worker of speech, so that a mail server that
 * hangs holds up no speech, and long speech no mail. What fails is tried again, as the outbox says. Starts, and starts
 * again, when the database can be reached.
 */
export class MailWorker {
  readonly #queue: QueueWorker;

  constructor(options: MailWorkerOptions) {
    const { db, databaseUrl, namedStatements, log } = options;
    const send = smtpSender(options);
    this.#queue = new QueueWorker(
      {
        name: 'mail worker',
        task: MAIL_TASK,
        run: (payload, _entryId, signal) =>
          deliverFeedback(db, (payload as MailTaskPayload).feedbackId, options, send, signal),
        beat: async (queuePool) => {
          if (queuePool === undefined) await sql`select 1`.execute(db);
        },
      },
      { databaseUrl, namedStatements, concurrency: 1, maxConnections: CONNECTIONS, log },
    );
  }

  start(): void {
    this.#queue.start();
  }

  /** Lets a mail that is being handed over go out, for some seconds; the rest stays in the queue. */
  stop(): Promise<void> {
    return this.#queue.stop();
  }
}
