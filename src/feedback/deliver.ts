import type { Transporter } from 'nodemailer';
import type { SendMailOptions } from 'nodemailer/lib/mailer';
import type { Mailbox } from '../config/mailbox.ts';
import type { Database } from '../db/database.ts';
import { clockTime, localSetting } from '../db/expressions.ts';
import { QueueWorker, type QueueWorkerOptions } from '../db/queue-worker.ts';
import { testPoint } from '../lib/test-point.ts';
import type { OutsideCalls } from '../observability/outside.ts';
import { DETAILS, type Details } from './content.ts';
import { MAIL_TASK, type MailTaskPayload } from './outbox.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** For each reply of the mail server. Giving up while it accepts the mail would send the mail twice. */
const ANSWER_TIMEOUT_MS = 60_000;
const LOCK_SECONDS = 600;

interface MailParties {
  readonly serviceName: string;
  readonly from: Mailbox;
  readonly to: readonly Mailbox[];
}

export interface MailOptions extends MailParties {
  readonly smtpUrl: string;
}

/** Throws if the mail server is unreachable or refuses the mail, or if the signal aborts. */
export type MailSender = (mail: SendMailOptions, signal: AbortSignal) => Promise<void>;

function smtpSender({ smtpUrl }: MailOptions): MailSender {
  const options = {
    url: smtpUrl,
    connectionTimeout: CONNECT_TIMEOUT_MS,
    dnsTimeout: CONNECT_TIMEOUT_MS,
    greetingTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: ANSWER_TIMEOUT_MS,
    // Keeps nodemailer from reading files and URLs that a mail names.
    disableFileAccess: true,
    disableUrlAccess: true,
  };
  let transport: Transporter | undefined;
  return async (mail, signal) => {
    // Loaded with the first mail.
    transport ??= (await import('nodemailer')).createTransport(options);
    await transport.sendMail({ ...mail, signal });
  };
}

/**
 * Mails feedback that is stored (R38). A row lock prevents double mails. Only a crash between the reply and the update
 * repeats one, with its Message-ID.
 */
export async function deliverFeedback(
  db: Database,
  feedbackId: string,
  parties: MailParties,
  send: MailSender,
  signal: AbortSignal,
): Promise<void> {
  await db.transaction().execute(async (trx) => {
    await trx
      .selectNoFrom(localSetting('idle_in_transaction_session_timeout', `${LOCK_SECONDS}s`).as('timeout'))
      .execute();
    const row = await trx
      .selectFrom('feedback')
      .select(['id', 'wallet', 'category', 'message', 'details', 'trace_id as traceId', 'received_at as receivedAt'])
      .where('id', '=', feedbackId)
      .where('mailed_at', 'is', null)
      .forUpdate()
      .noWait()
      .$narrowType<{ details: Details | null }>()
      .executeTakeFirst();
    if (!row) return;
    testPoint('mail claimed');
    await send(feedbackMail(row, parties), signal);
    testPoint('mail sent');
    await trx.updateTable('feedback').set({ mailed_at: clockTime }).where('id', '=', feedbackId).execute();
  });
  testPoint('mail recorded');
}

interface StoredFeedback {
  readonly id: string;
  readonly wallet: string;
  readonly category: string;
  readonly message: string;
  readonly details: Details | null;
  readonly traceId: string;
  readonly receivedAt: Date;
}

/** No header holds text of the sender, so headers can't be injected. The Message-ID is the same at each attempt. */
function feedbackMail(feedback: StoredFeedback, { serviceName, from, to }: MailParties): SendMailOptions {
  const { id, wallet, category, message, details, traceId, receivedAt } = feedback;
  const text = [
    `Feedback:  ${id}`,
    `Received:  ${receivedAt.toISOString()}`,
    `Category:  ${category}`,
    `Wallet:    ${wallet} (signature checked)`,
    `Trace id:  ${traceId}`,
    '',
    'What follows was written by the sender.',
    '',
    ...DETAILS.flatMap((name) => (details?.[name] === undefined ? [] : [`${name}: ${JSON.stringify(details[name])}`])),
    '',
    message,
    '',
  ].join('\n');
  return {
    from,
    to: [...to],
    subject: `[${serviceName}] Feedback: ${category} from ${wallet}`,
    messageId: `<feedback-${id}@${from.address.split('@')[1]}>`,
    date: receivedAt,
    headers: { 'Auto-Submitted': 'auto-generated' },
    text,
    textEncoding: 'quoted-printable',
  };
}

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
