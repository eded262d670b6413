import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { HOLD_LEASE_HAS_ENDED } from './hold.ts';

export interface PendingHolds {
  readonly count: number;
  /** Age of the oldest one, 0 without any. */
  readonly oldestSeconds: number;
  /** Those of them whose lease has passed: nobody keeps them any more. A job's hold has none. */
  readonly pastLease: number;
  /** How long ago the lease passed that did first, 0 without any. */
  readonly oldestPastLeaseSeconds: number;
}

/** The holds that are neither posted nor voided now. */
export async function pendingHolds(db: Database): Promise<PendingHolds> {
  const { rows } = await sql<Row>`
    select count(*)::int as count,
           coalesce(extract(epoch from now() - min(created_at)), 0)::float8 as oldest_seconds,
           count(*) filter (where ${HOLD_LEASE_HAS_ENDED})::int as past_lease,
           coalesce(greatest(extract(epoch from now() - min(lease_until)), 0), 0)::float8 as oldest_past_lease_seconds
    from transfer where state = 'pending'`.execute(db);
  const row = rows[0];
  return {
    count: row?.count ?? 0,
    oldestSeconds: row?.oldest_seconds ?? 0,
    pastLease: row?.past_lease ?? 0,
    oldestPastLeaseSeconds: row?.oldest_past_lease_seconds ?? 0,
  };
}

interface Row {
  readonly count: number;
  readonly oldest_seconds: number;
  readonly past_lease: number;
  readonly oldest_past_lease_seconds: number;
}
