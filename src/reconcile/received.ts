import type { Catalog } from '../config/catalog.ts';
import type { Asset } from '../config/network.ts';
import type { Payee } from '../config/payees.ts';
import { MAX_TEXT_LENGTH } from '../config/speech-limits.ts';
import type { Database } from '../db/database.ts';
import { isConnectionError } from '../db/database-errors.ts';
import { testPoint } from '../lib/test-point.ts';
import type { DatedTransfer } from '../payments/x402/chain.ts';
import type { Payment } from '../payments/x402/payment.ts';
import { PREPAID } from '../payments/x402/prepaid-terms.ts';
import type { OpenPayments } from '../payments/x402/resolver.ts';
import { type AuthorizedTransfer, everyPayee, paymentsOf } from '../payments/x402/unrecorded-transfers.ts';
import { isPrice } from '../speech/price.ts';

export type InferredPurpose = 'deposit' | 'speech' | 'either' | 'neither';

/** Guesses by the bounds of deposits and the prices of this catalog. @param amount in micro-USD */
export function inferPurpose(amount: bigint, { models }: Catalog): InferredPurpose {
  const isDeposit = amount >= PREPAID.minDepositMicroUsd && amount <= PREPAID.maxDepositMicroUsd;
  const isSpeech = models.some(({ ratePicoUsd, maxInputCharacters }) =>
    isPrice(amount, ratePicoUsd, Math.min(maxInputCharacters, MAX_TEXT_LENGTH)),
  );
  if (isDeposit && isSpeech) return 'either';
  if (isDeposit) return 'deposit';
  return isSpeech ? 'speech' : 'neither';
}

export interface Received {
  readonly known: readonly DatedTransfer[];
  readonly open: readonly DatedTransfer[];
  readonly unrecorded: readonly AuthorizedTransfer[];
  readonly others: readonly DatedTransfer[];
  readonly failed: readonly FailedTransfer[];
}

export interface FailedTransfer {
  readonly transfer: DatedTransfer;
  readonly error: unknown;
}

const CLOCKS_MS = 600_000;

/** Settles payments for the transfers since then, including those that a backup has only as reserved. */
export async function settleReceived(
  { db, payments, asset, payees }: { db: Database; payments: OpenPayments; asset: Asset; payees: readonly Payee[] },
  since: Date,
): Promise<Received> {
  const begin = new Date(since.getTime() - CLOCKS_MS);
  const received = await payments.chain.received(await everyPayee(db, payees), begin);
  const authorized = received.filter((transfer): transfer is AuthorizedTransfer => transfer.nonce !== undefined);
  const recorded = await paymentsOf(db, asset, authorized);
  const known: DatedTransfer[] = [];
  const open: DatedTransfer[] = [];
  const failed: FailedTransfer[] = [];
  for (const [transfer, payment] of recorded) {
    try {
      const isSettled = payment.state === 'settled' || (await settle(payments, payment, transfer));
      (isSettled ? known : open).push(transfer);
    } catch (error) {
      if (isConnectionError(error)) throw error;
      failed.push({ transfer, error });
    }
  }
  return {
    ...{ known, open, failed },
    unrecorded: authorized.filter((transfer) => !recorded.has(transfer)),
    others: received.filter(({ nonce }) => nonce === undefined),
  };
}

async function settle(
  { chain, reservations, resolver }: OpenPayments,
  payment: Payment,
  { transaction }: DatedTransfer,
): Promise<boolean> {
  if (payment.isLeased) return false;
  const isDeposit = payment.purpose === 'deposit';
  const found = await chain.prove(payment.claim, transaction, isDeposit);
  if (!found || (isDeposit && !found.isConfirmed)) return false;
  // A settle was sent, because its transfer is on the chain.
  if (payment.state === 'reserved' && !(await reservations.beginSettling(payment))) return false;
  testPoint('received payment settling');
  return (await resolver.book(payment, found.proof)) !== undefined;
}
