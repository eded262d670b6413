import type { Database } from '../../db/database.ts';
import { contra } from '../../ledger/transfer.ts';
import { isUuid } from '../../lib/uuid.ts';

/** The whole id of a card account is a bearer secret, so operators see its first digits. */
export const SHORT_ID = 8;

/** The whole id of a checkout session is a secret too: it shows the account (R40). */
const SHORT_SESSION = 16;
const ACCOUNT_ID = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi;
const SESSION_ID = /\bcs_\w+/g;
const OWN_IDS: readonly string[] = Object.values(contra);

export const shortenAccount = (id: string): string => `${id.slice(0, SHORT_ID)}…`;

export const shortenSession = (id: string): string => `${id.slice(0, SHORT_SESSION)}…`;

export const shortenSecrets = (text: string): string =>
  text
    .replace(ACCOUNT_ID, (id) => (OWN_IDS.includes(id) ? id : shortenAccount(id)))
    .replace(SESSION_ID, shortenSession);

/**
 * Ids of the accounts with this id, or address of a wallet. At least 8 digits from the start of a card account's id are
 * enough, so several accounts may match. Undefined if the name is invalid.
 */
export async function accountsNamed(db: Database, name: string): Promise<string[] | undefined> {
  const text = name.trim().toLowerCase().replace(/…$/, '');
  if (/^0x[0-9a-f]{40}$/.test(text)) {
    const rows = await db.selectFrom('account').select('id').where('address', '=', text).execute();
    return rows.map(({ id }) => id);
  }
  const digits = text.replaceAll('-', '');
  if (!isUuid(text) && !/^[0-9a-f]{8,32}$/.test(digits)) return undefined;
  const rows = await db
    .selectFrom('account')
    .select('id')
    .where('kind', '=', 'card')
    .where((eb) => eb.between('id', digits.padEnd(32, '0'), digits.padEnd(32, 'f')))
    .orderBy('id')
    .limit(10)
    .execute();
  return rows.map(({ id }) => id);
}
