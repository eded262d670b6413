import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** What callers owe in all, in micro-USD: credit that was taken back after it had been spent. */
export async function totalDebt(db: Database): Promise<number> {
  const { rows } = await sql<{ owed: number }>`
    select coalesce(sum(balance_micro_usd), 0)::float8 as owed from account where kind = 'debt'`.execute(db);
  return rows[0]?.owed ?? 0;
}
