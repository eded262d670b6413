import { setTimeout as sleep } from 'node:timers/promises';
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

const LOCK_NOT_AVAILABLE = '55P03';
const POLL_MS = 10;

/**
 * Does the work with the guards of the books switched off, as only the owner of the tables can, and on again: to tell
 * what the audit sees of it, or to have happened long ago what has happened just now. One transaction.
 */
export async function unguarded<T>(db: Database, work: (trx: Database) => Promise<T>): Promise<T> {
  if (db.isTransaction) return within(db);
  for (;;) {
    try {
      return await db.transaction().execute(async (trx) => {
        // Waiting with some of the tables would block a gateway that has others of them.
        await sql`lock table ${sql.join(GUARDED.map((name) => sql.table(name)))} in share row exclusive mode nowait`.execute(
          trx,
        );
        return await within(trx);
      });
    } catch (error) {
      if ((error as { code?: string }).code !== LOCK_NOT_AVAILABLE) throw error;
      await sleep(POLL_MS);
    }
  }

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
