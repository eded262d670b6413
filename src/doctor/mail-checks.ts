import { randomUUID } from 'node:crypto';
import { PassThrough } from 'node:stream';
import { parseConnectionUrl } from 'nodemailer/lib/shared';
import SMTPConnection from 'nodemailer/lib/smtp-connection';
import { smtpSender } from '../feedback/deliver.ts';
import type { MailConfig } from '../settings/feedback-settings.ts';
import { type Area, type Finding, fault, off, ok } from './check.ts';
import type { Patient } from './patient.ts';

const NAME = 'mail';
const ANSWER_MS = 10_000;
const SEND_LIMIT_MS = 60_000;

/** Whether the mail server takes us, and mail to each address of the operator. */
export function mailChecks({ config, mails }: Pick<Patient, 'config' | 'mails'>): Area {
  const { feedback, serviceName } = config;
  if (!feedback?.mail) return off([NAME], 'SMTP_URL is unset: feedback is stored only.');
  const { mail } = feedback;
  const run = () => (mails ? sendsMail(mail, serviceName) : takesMail(mail));
  return { checks: [{ name: NAME, run, ...(mails && { limitMs: SEND_LIMIT_MS }) }] };
}

interface SmtpError extends Error {
  readonly code?: string;
  readonly responseCode?: number;
}

async function takesMail({ smtpUrl, from, to }: MailConfig): Promise<Finding> {
  for (const { address } of to) {
    try {
      await offer(smtpUrl, from.address, address);
    } catch (error) {
      return refused(error as SmtpError, address);
    }
  }
  return ok(`The mail server takes mail for ${to.length === 1 ? 'the address' : `all ${to.length} addresses`}.`);
}

async function sendsMail(mail: MailConfig, serviceName: string): Promise<Finding> {
  const subject = `[${serviceName}] This is how feedback will arrive`;
  const messageId = `<doctor-${randomUUID()}@${mail.from.address.split('@')[1]}>`;
  const text = 'speechgate doctor --mail has sent this. The settings of feedback mail work.\n';
  const letter = { from: mail.from, to: [...mail.to], subject, messageId, date: new Date(), text };
  try {
    await smtpSender({ ...mail, serviceName })(letter, AbortSignal.timeout(SEND_LIMIT_MS));
  } catch (error) {
    return refused(error as SmtpError, mail.to.map(({ address }) => address).join(', '));
  }
  return ok('The mail server has taken a mail.');
}

/** What the server has written is not told: it may repeat what it was sent. */
function refused({ code, responseCode }: SmtpError, address: string): Finding {
  const status = responseCode === undefined ? '' : ` (${responseCode})`;
  if (code === 'EAUTH') {
    return fault(`The mail server refuses our credentials${status}.`, 'Correct user and password in SMTP_URL.');
  }
  if (code === 'EENVELOPE') {
    const fix = 'Correct FEEDBACK_FROM and FEEDBACK_TO, or let the server take mail from here.';
    return fault(`The mail server takes no mail for ${address}${status}.`, fix);
  }
  const fix = "Correct SMTP_URL's scheme (smtp, smtps), host and port, or look at the network between.";
  return fault(`The mail server can't be used: ${code ?? 'no answer'}${status}.`, fix);
}

/** Connects, authenticates and names sender and recipient; leaves before the end of a message, so that none is sent. */
function offer(smtpUrl: string, from: string, to: string): Promise<void> {
  const options = parseConnectionUrl(smtpUrl);
  const timeouts = { connectionTimeout: ANSWER_MS, greetingTimeout: ANSWER_MS, socketTimeout: ANSWER_MS };
  const connection = new SMTPConnection({ ...options, ...timeouts, dnsTimeout: ANSWER_MS });
  return new Promise<void>((resolve, reject) => {
    const offerMail = () => {
      // It is read once the server waits for the message.
      const message = new PassThrough();
      message.once('resume', () => resolve());
      connection.send({ from, to: [to] }, message, (error) => (error ? reject(error) : resolve()));
    };
    connection.once('error', reject);
    connection.once('end', () => reject(new Error('The connection has ended.')));
    connection.connect((error) => {
      if (error) reject(error);
      else if (options.auth) connection.login(options.auth, (refusal) => (refusal ? reject(refusal) : offerMail()));
      else offerMail();
    });
  }).finally(() => connection.close());
}
