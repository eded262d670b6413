import { type Mailbox, readMailboxes } from './mailbox.ts';
import type { SettingsReader } from './settings-reader.ts';

export interface MailConfig {
  readonly smtpUrl: string;
  readonly from: Mailbox;
  readonly to: readonly Mailbox[];
}

export interface FeedbackConfig {
  readonly secrets: readonly string[];
  /** How long a challenge may be used (R38). */
  readonly challengeTtlSeconds: number;
  readonly maxPerHour: number;
  readonly retentionDays: number;
  readonly mail: MailConfig | undefined;
}

const SMTP_EXAMPLE = 'smtp://user:password@mail.example:587';
const MAIL_SETTINGS = ['SMTP_URL', 'FEEDBACK_FROM', 'FEEDBACK_TO'];

export function readFeedback(reader: SettingsReader): FeedbackConfig | undefined {
  const feedback = {
    secrets: reader.secrets('FEEDBACK_SECRET'),
    challengeTtlSeconds: reader.integer('FEEDBACK_CHALLENGE_TTL_SECONDS', 1, 900) ?? 600,
    maxPerHour: reader.integer('FEEDBACK_MAX_PER_HOUR', 1, 1_000_000) ?? 60,
    retentionDays: reader.integer('FEEDBACK_RETENTION_DAYS', 1, 36_500) ?? 365,
    mail: readMail(reader),
  };
  if (feedback.secrets.length > 0) return feedback;
  const given = MAIL_SETTINGS.find((name) => reader.text(name));
  return given
    ? reader.missing('FEEDBACK_SECRET', given, 'Set it to a secret, for example from: openssl rand -hex 32.')
    : undefined;
}

function readMail(reader: SettingsReader): MailConfig | undefined {
  const given = MAIL_SETTINGS.find((name) => reader.text(name));
  if (!given) return undefined;
  const smtpUrl = reader.url('SMTP_URL', mailSetting(reader, 'SMTP_URL', given), ['smtp:', 'smtps:'], SMTP_EXAMPLE);
  if (smtpUrl?.hostname === '') reader.fault('SMTP_URL', 'names no host', `Set it to a URL such as ${SMTP_EXAMPLE}.`);
  const from = mailboxes(reader, 'FEEDBACK_FROM', given);
  if (from.length > 1)
    reader.fault('FEEDBACK_FROM', 'names several addresses', 'Set it to the one address that mail is sent from.');
  const to = mailboxes(reader, 'FEEDBACK_TO', given);
  return smtpUrl && from[0] && { smtpUrl: smtpUrl.href, from: from[0], to };
}

function mailSetting(reader: SettingsReader, name: string, given: string): string | undefined {
  return reader.text(name) ?? reader.missing(name, given, 'Set it, or unset SMTP_URL, FEEDBACK_FROM and FEEDBACK_TO.');
}

function mailboxes(reader: SettingsReader, name: string, given: string): Mailbox[] {
  const value = mailSetting(reader, name, given);
  if (value === undefined) return [];
  const fix = 'Write an address as user@host or Name <user@host>.';
  return readMailboxes(value) ?? reader.fault(name, 'has an entry that is not an email address', fix) ?? [];
}
