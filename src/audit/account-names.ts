import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { isUuid } from '../lib/uuid.ts';

/** What is shown of a card account's id at least: whoever has the whole one can spend from it (R12). */
export const SHORT_ID = 8;

/** The beginning of a secret that names something, as operators see it. */
export const shorten = (secret: string, length = SHORT_ID): string => `${secret.slice(0, length)}…`;

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
