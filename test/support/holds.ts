import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { HOLD_LEASE_SECONDS } from '../../src/config/work-limits.ts';
import type { Database } from '../../src/db/database.ts';
import { type CardHoldResult, placeCardHold } from '../../src/ledger/card-holds.ts';
import type { UsageRecord } from '../../src/ledger/hold.ts';
import { type PrepaidDebit, type PrepaidDebitResult, placeWalletHold } from '../../src/ledger/wallet-holds.ts';

/**
 * Holds an amount on a card account.
 * @param leaseSeconds how long the lease is, from now; null for the hold of a job
 */
export async function holdOnCard(
  db: Database,
  accountId: string,
  amountMicroUsd: bigint,
  leaseSeconds: number | null = HOLD_LEASE_SECONDS,
  { usage, livemode = null }: { readonly usage?: UsageRecord; readonly livemode?: boolean | null } = {},
): Promise<CardHoldResult> {
  const asked = { id: uuidv7(), accountId, amountMicroUsd, usage };
  const placed = await placeCardHold(db, asked, { isLeased: leaseSeconds !== null, livemode });
  if (placed.outcome === 'held') await setLease(db, placed.hold.id, leaseSeconds);
  return placed;
}

/** Holds an amount on a wallet's balance, and spends the nonce. */
export async function holdOnWallet(
  db: Database,
  spend: Omit<PrepaidDebit, 'id'>,
  leaseSeconds = HOLD_LEASE_SECONDS,
): Promise<PrepaidDebitResult> {
  const placed = await placeWalletHold(db, { id: uuidv7(), ...spend });
  if (placed.outcome === 'held') await setLease(db, placed.hold.id, leaseSeconds);
  return placed;
}

async function setLease(db: Database, id: string, leaseSeconds: number | null): Promise<void> {
  if (leaseSeconds === null || leaseSeconds === HOLD_LEASE_SECONDS) return;
  await sql`
    update transfer set lease_until = now() + make_interval(secs => ${leaseSeconds}::double precision)
    where id = ${id}`.execute(db);
}
