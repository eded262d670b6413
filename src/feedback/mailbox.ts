import addressparser from 'nodemailer/lib/addressparser';

/** Whom mail is from or to (RFC 5322, 3.4). */
export interface Mailbox {
  readonly name: string;
  readonly address: string;
}

const ADDRESS = /^[^\s@<>(),;:"\\[\]]+@[^\s@<>(),;:"\\[\]]+$/;

/** Reads `user@example.com` or `Name <user@example.com>`, several with commas; undefined when one is neither. */
export function readMailboxes(text: string): Mailbox[] | undefined {
  const mailboxes = addressparser(text, { flatten: true });
  const isValid = mailboxes.length > 0 && mailboxes.every(({ address }) => ADDRESS.test(address));
  return isValid ? mailboxes.map(({ name, address }) => ({ name, address })) : undefined;
}
