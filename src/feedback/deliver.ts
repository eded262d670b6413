import { sql } from 'kysely';
import { createTransport } from 'nodemailer';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Details } from './content.ts';
import { feedbackMail, type MailParties } from './feedback-mail.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** For each answer of the mail server. Giving up on one that is about to accept the mail would send it twice. */
const ANSWER_TIMEOUT_MS = 60_000;
/** How long the database keeps the record locked for an attempt that does not end. */
const LOCK_SECONDS = 600;

export interface MailOptions extends MailParties {
  /** `smtp://` or `smtps://`, with nodemailer's options in the query. */
  readonly smtpUrl: string;
}

/** Hands mail to a mail server. Throws when the server can't be reached or refuses it, and when the signal fires. */
export type MailSender = (mail: ReturnType<typeof feedbackMail>, signal: AbortSignal) => Promise<void>;

/** A sender that makes a connection for each mail, and reads neither files nor addresses that a mail might name. */
export function smtpSender({ smtpUrl }: MailOptions): MailSender {
  const transport = createTransport({
    url: smtpUrl,
    connectionTimeout: CONNECT_TIMEOUT_MS,
    dnsTimeout: CONNECT_TIMEOUT_MS,
    greetingTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: ANSWER_TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  return async (mail, signal) => {
    await transport.sendMail({ ...mail, signal });
  };
}

/**
 * Mails the feedback unless that has been done, and records when. The record stays locked while the mail is handed over,
 * so two workers never send it both: the second one fails, and is tried again later. A process that dies between the
 * mail server's answer and its own record of it is the only way to a second mail, which has the same Message-ID.
 */
export async function deliverFeedback(
  db: Database,
  feedbackId: string,
  parties: MailParties,
  send: MailSender,
  signal: AbortSignal,
): Promise<void> {
  await db.transaction().execute(async (trx) => {
    await sql`select set_config('idle_in_transaction_session_timeout', ${`${LOCK_SECONDS}s`}, true)`.execute(trx);
    const row = await trx
      .selectFrom('feedback')
      .select(['id', 'wallet', 'category', 'message', 'details', 'trace_id', 'received_at'])
      .where('id', '=', feedbackId)
      .where('mailed_at', 'is', null)
      .forUpdate()
      .noWait()
      .executeTakeFirst();
    if (!row) return;
    testPoint('mail claimed');
    const { trace_id: traceId, received_at: receivedAt, details, ...rest } = row;
    await send(feedbackMail({ ...rest, details: details as Details | null, traceId, receivedAt }, parties), signal);
    testPoint('mail sent');
    await trx
      .updateTable('feedback')
      .set({ mailed_at: sql<Date>`clock_timestamp()` })
      .where('id', '=', feedbackId)
      .execute();
  });
  testPoint('mail recorded');
}
