export interface Mailbox {
  readonly name: string;
  readonly address: string;
}

const ADDRESS = String.raw`[^\s@<>(),;:"\\[\]\p{Cc}]+@[^\s@<>(),;:"\\[\]\p{Cc}]+`;
const MAILBOX = new RegExp(
  String.raw`^(?:"(?<quoted>[^"\\\p{Cc}]*)" *<(?<a>${ADDRESS})>|(?<plain>[^"<>@,;:\\\p{Cc}]*)<(?<b>${ADDRESS})>|(?<c>${ADDRESS}))$`,
  'u',
);
const COMMA_OUTSIDE_QUOTES = /,(?=(?:[^"]*"[^"]*")*[^"]*$)/;

/** Reads a comma-separated list of `user@host` or `Name <user@host>`. Returns undefined if an entry is malformed. */
export function readMailboxes(text: string): Mailbox[] | undefined {
  const mailboxes = text.split(COMMA_OUTSIDE_QUOTES).map((part) => readMailbox(part.trim()));
  return mailboxes.every((mailbox) => mailbox !== undefined) ? mailboxes : undefined;
}

function readMailbox(text: string): Mailbox | undefined {
  const groups = MAILBOX.exec(text)?.groups;
  const address = groups?.a ?? groups?.b ?? groups?.c;
  return address === undefined ? undefined : { name: (groups?.quoted ?? groups?.plain ?? '').trim(), address };
}
