import { v7 as uuidv7 } from 'uuid';
import type { Database } from '../../src/db/database.ts';
import { type CardHoldResult, singleCardHold } from '../../src/ledger/card-holds.ts';
import type { UsageRecord } from '../../src/ledger/hold.ts';
import { singleWalletHold, type WalletHoldRequest, type WalletHoldResult } from '../../src/ledger/wallet-holds.ts';

/** As long as that of a gateway without SPEECH_TIMEOUT_MS. */
export const HOLD_LEASE_SECONDS = 75;

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
  const holdRequest = { id: uuidv7(), accountId, amountMicroUsd, usage };
  return singleCardHold({ leaseSeconds, livemode })(db, holdRequest);
}

/** Holds an amount on a wallet's balance, and spends the nonce. */
export async function holdOnWallet(
  db: Database,
  spend: Omit<WalletHoldRequest, 'id'>,
  leaseSeconds = HOLD_LEASE_SECONDS,
): Promise<WalletHoldResult> {
  return singleWalletHold({ leaseSeconds })(db, { id: uuidv7(), ...spend });
}
