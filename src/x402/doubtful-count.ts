import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { LEASE_SECONDS } from './payment.ts';

export interface PaymentsInDoubt {
  readonly count: number;
  /** Since the settlement of the oldest one was sent, 0 without any. */
  readonly oldestSeconds: number;
}

/**
 * The payments that may have been paid and of which nobody knows: their settlement was sent, and had no clear end. Those
 * that the facilitator refused are not among them: they were hardly paid, and the chain is asked about them too.
 */
export async function paymentsInDoubt(db: Database): Promise<PaymentsInDoubt> {
  const { rows } = await sql<{ count: number; oldest_seconds: number }>`
    select count(*)::int as count,
           coalesce(extract(epoch from now() - min(settling_at)), 0)::float8 as oldest_seconds
    from x402_payment
    where state in ('unknown', 'settling') and (state <> 'settling' or lease_has_ended(lease_until, ${LEASE_SECONDS}))`.execute(
    db,
  );
  return { count: rows[0]?.count ?? 0, oldestSeconds: rows[0]?.oldest_seconds ?? 0 };
}
