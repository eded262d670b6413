import { sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';

const GUARDED = [
  'transfer',
  'account',
  'top_up',
  'clawback',
  'processor_list',
  'operator_action',
  'paused_flow',
  'x402_payment',
  'prepaid_nonce',
  'job',
];

/**
 * Does the work with the guards of the books switched off, as only the owner of the tables can, and on again: to tell
 * what the audit sees of it, or to have happened long ago what has happened just now. One transaction.
 */
export async function unguarded<T>(db: Database, work: (trx: Database) => Promise<T>): Promise<T> {
  return db.isTransaction ? within(db) : db.transaction().execute(within);

  async function within(trx: Database): Promise<T> {
    await switchGuards(trx, 'disable');
    const result = await work(trx);
    await switchGuards(trx, 'enable');
    return result;
  }
}

async function switchGuards(trx: Database, how: 'disable' | 'enable'): Promise<void> {
  for (const table of GUARDED) await sql`alter table ${sql.table(table)} ${sql.raw(how)} trigger user`.execute(trx);
}
