import { sql } from 'kysely';
import { type Database, openDatabase } from '../src/db/database.ts';
import { until } from '../test/support/until.ts';

const SETTLE_MS = 150_000;

/** Waits until the reconcilers have ended all that is open: holds, jobs and payments. */
export async function untilNothingIsOpen(databaseUrl: string): Promise<void> {
  const db = openDatabase(databaseUrl, { maxConnections: 1 });
  try {
    await until(async () => (await openThings(db)) === 0n, SETTLE_MS);
  } finally {
    await db.destroy();
  }
}

async function openThings(db: Database): Promise<bigint> {
  const { rows } = await sql<{ count: bigint }>`
    select (select count(*) from transfer where state = 'pending')
         + (select count(*) from job where state in ('queued', 'processing'))
         + (select count(*) from x402_payment where state in ('reserved', 'settling', 'unknown')) as count`.execute(db);
  return rows[0]?.count ?? 0n;
}
