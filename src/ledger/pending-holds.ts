import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

export interface PendingHolds {
  readonly count: number;
  /** Age of the oldest one, 0 without any. */
  readonly oldestSeconds: number;
}

/** The holds that are neither posted nor voided now. */
export async function pendingHolds(db: Database): Promise<PendingHolds> {
  const { rows } = await sql<{ count: number; oldest_seconds: number }>`
    select count(*)::int as count,
           coalesce(extract(epoch from now() - min(created_at)), 0)::float8 as oldest_seconds
    from transfer where state = 'pending'`.execute(db);
  return { count: rows[0]?.count ?? 0, oldestSeconds: rows[0]?.oldest_seconds ?? 0 };
}
