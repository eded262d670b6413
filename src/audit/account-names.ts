import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { contra } from '../ledger/contra.ts';
import { isUuid } from '../lib/uuid.ts';

/** What is shown of a card account's id at least: whoever has the whole one can spend from it (R12). */
export const SHORT_ID = 8;

/** Likewise of a checkout session's, which shows an account (R40). */
const SHORT_SESSION = 16;
const ACCOUNT_ID = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi;
const SESSION_ID = /\bcs_\w+/g;
/** They are in every database, and nobody's. */
const OWN_IDS: readonly string[] = Object.values(contra);

/** The beginning of a card account's id, as operators see it. */
export const shortenAccount = (id: string): string => `${id.slice(0, SHORT_ID)}…`;

/** Likewise of a checkout session's id. */
export const shortenSession = (id: string): string => `${id.slice(0, SHORT_SESSION)}…`;

/** A text in which each id that can be an account's, and each session's, is shortened. */
export const shortenSecrets = (text: string): string =>
  text
    .replace(ACCOUNT_ID, (id) => (OWN_IDS.includes(id) ? id : shortenAccount(id)))
    .replace(SESSION_ID, shortenSession);

/**
 * The accounts that an operator means: by a card account's id, the beginning of one with 8 digits at least, or the
 * address of a wallet. More than one where a beginning is not enough; undefined when it can name none.
 */
export async function accountsNamed(db: Database, name: string): Promise<string[] | undefined> {
  const text = name.trim().toLowerCase().replace(/…$/, '');
  if (/^0x[0-9a-f]{40}$/.test(text)) {
    const { rows } = await sql<{ id: string }>`select id from account where address = ${text}`.execute(db);
    return rows.map(({ id }) => id);
  }
  const digits = text.replaceAll('-', '');
  if (!isUuid(text) && !/^[0-9a-f]{8,32}$/.test(digits)) return undefined;
  const { rows } = await sql<{ id: string }>`
    select id from account
    where kind = 'card' and id between ${digits.padEnd(32, '0')}::uuid and ${digits.padEnd(32, 'f')}::uuid
    order by id limit 10`.execute(db);
  return rows.map(({ id }) => id);
}
