import type { Database } from '../db/database.ts';
import { QueueWorker, type QueueWorkerOptions } from '../db/queue-worker.ts';
import type { OutsideCalls } from '../observability/outside.ts';
import { deliverFeedback, type MailOptions, type MailSender, smtpSender } from './deliver.ts';
import { MAIL_TASK, type MailTaskPayload } from './outbox.ts';

/** One listens, one works on an entry. */
const CONNECTIONS = 2;

/** Separate from the job worker: a hanging mail server delays no speech, and long speech delays no mail. */
export function mailWorker(
  db: Database,
  mail: MailOptions,
  queue: Pick<QueueWorkerOptions, 'databaseUrl' | 'namedStatements' | 'log'>,
  calls: OutsideCalls,
): QueueWorker {
  const sendMail = smtpSender(mail);
  const send: MailSender = (letter, signal) => calls.measure('send', () => sendMail(letter, signal));
  return new QueueWorker(
    {
      name: 'mail worker',
      task: MAIL_TASK,
      run: (payload, signal) => deliverFeedback(db, (payload as MailTaskPayload).feedbackId, mail, send, signal),
    },
    { ...queue, concurrency: 1, maxConnections: CONNECTIONS },
  );
}
