import type { SendMailOptions } from 'nodemailer/lib/mailer';
import { DETAILS, type Details } from './content.ts';
import type { Mailbox } from './mailbox.ts';

/** Feedback as it is stored. */
export interface StoredFeedback {
  readonly id: string;
  readonly wallet: string;
  readonly category: string;
  readonly message: string;
  readonly details: Details | null;
  readonly traceId: string;
  readonly receivedAt: Date;
}

export interface MailParties {
  readonly serviceName: string;
  readonly from: Mailbox;
  readonly to: readonly Mailbox[];
}

/**
 * The mail about a piece of feedback, as plain text. The headers hold nothing that its sender wrote, so nothing can be
 * put into them; in the body, what the sender wrote comes after all else, each detail as JSON on one line. The
 * Message-ID is the same for each attempt, so that a mail server can tell a repetition.
 */
export function feedbackMail(feedback: StoredFeedback, { serviceName, from, to }: MailParties): SendMailOptions {
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
