import type { Database } from '../db/database.ts';
import { isAway } from '../db/database-errors.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Asset } from '../x402/network.ts';
import type { OpenPayments } from '../x402/open-payments.ts';
import type { Payee } from '../x402/payees.ts';
import type { Payment } from '../x402/payment.ts';
import type { DatedTransfer } from '../x402/received-transfers.ts';
import { type AuthorizedTransfer, everyPayee, paymentsOf } from '../x402/unrecorded-transfers.ts';

/** What the chain has brought the payees, and what the database knows of it. */
export interface Received {
  /** Of payments that are settled, those among them that have become so just now. */
  readonly known: readonly DatedTransfer[];
  /** Of payments that a process is at, or that have other terms than the transfer. */
  readonly open: readonly DatedTransfer[];
  /** By an authorization of which the database has no payment. */
  readonly unrecorded: readonly AuthorizedTransfer[];
  /** Sent without an authorization: nothing that this service takes. */
  readonly others: readonly DatedTransfer[];
  /** Of payments that could not be settled here; the others were all the same. */
  readonly failed: readonly FailedTransfer[];
}

export interface FailedTransfer {
  readonly transfer: DatedTransfer;
  readonly error: unknown;
}

/** The clocks of chain and database differ by less. */
const CLOCKS_MS = 600_000;

/**
 * Holds every transfer to the payees since then against the payments, and settles those that the chain proves: also those
 * that were only reserved when the backup was made, and whose process settled them later.
 * @throws RpcError
 */
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
      if (isAway(error)) throw error;
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
  // A settle was sent for it, or its transfer would not be there.
  if (payment.state === 'reserved' && !(await reservations.beginSettling(payment))) return false;
  testPoint('received payment settling');
  return (await resolver.book(payment, found.proof)) !== undefined;
}
