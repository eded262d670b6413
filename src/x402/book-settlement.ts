import { getAddress } from 'viem';
import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { bookPayment } from '../ledger/settled-payment.ts';
import { encodeHeader } from './challenge.ts';
import type { Asset } from './network.ts';
import type { Payment } from './payment.ts';

/** Proof that a payment was settled: the token's Transfer event on the chain. */
export interface SettlementProof {
  readonly transaction: string;
  readonly logIndex: number;
}

export interface Booking {
  /** What replays repeat: the PAYMENT-RESPONSE header of whoever recorded the settlement. */
  readonly receipt: string;
  /** False when it was recorded before. */
  readonly isNew: boolean;
}

/** A payment that is proved to be settled. */
export interface SettledPayment {
  readonly id: bigint;
  readonly proof: SettlementProof;
  /** The PAYMENT-RESPONSE header. */
  readonly receipt: string;
}

/** The PAYMENT-RESPONSE header of a settled payment. */
export const paymentReceipt = ({ network }: Asset, payer: string, transaction: string): string =>
  encodeHeader({ success: true, transaction, network, payer: getAddress(payer) });

/** The transaction that a receipt of `paymentReceipt` names. */
export const transactionOf = (receipt: string): string =>
  JSON.parse(Buffer.from(receipt, 'base64').toString()).transaction;

/** The PAYMENT-RESPONSE header of a payment whose settlement was refused or has failed. */
export const failureReceipt = ({ network, claim }: Payment, reason: string): string =>
  encodeHeader({ success: false, errorReason: reason, transaction: '', network, payer: getAddress(claim.payer) });

/**
 * Records that payments are settled and books their amounts, in one statement: as revenue, or as the deposit of its
 * payer, whose wallet account comes into being with the first one; two deposits are of two payers. Undefined for a
 * payment that can't be settled from the state that it is in. Safe to repeat after a lost answer.
 */
export async function bookSettlements(
  db: Database,
  payments: readonly SettledPayment[],
): Promise<(Booking | undefined)[]> {
  const { rows } = await statement<{ id: bigint; receipt: string }>`
    with payment as (
      update x402_payment
      set state = 'settled', settled_at = now(), lease_until = null, refusal = null, failed_at = null, next_look_at = null,
          transaction_hash = settled.transaction, log_index = settled.log_index, receipt = settled.receipt
      from unnest(${payments.map(({ id }) => id)}::bigint[], ${payments.map(({ proof }) => proof.transaction)}::text[],
                  ${payments.map(({ proof }) => proof.logIndex)}::integer[],
                  ${payments.map(({ receipt }) => receipt)}::text[]) as settled (id, transaction, log_index, receipt)
      where x402_payment.id = settled.id and state in ('settling', 'refused', 'unknown', 'failed')
      returning x402_payment.id, purpose, payer, amount_micro_usd, x402_payment.receipt, trace_id,
                model, upstream, cost_pico_usd
    ), ${bookPayment(fragment`payment`)}
    select id, receipt from payment`.execute(db);
  const receipts = new Map(rows.map(({ id, receipt }) => [id, receipt]));
  return Promise.all(
    payments.map(async ({ id }) => {
      const receipt = receipts.get(id);
      return receipt === undefined ? findBooking(db, id) : { receipt, isNew: true };
    }),
  );
}

/** Records and books one payment, as `bookSettlements` does. @param receipt the PAYMENT-RESPONSE header */
export async function bookSettlement(
  db: Database,
  id: bigint,
  proof: SettlementProof,
  receipt: string,
): Promise<Booking | undefined> {
  return (await bookSettlements(db, [{ id, proof, receipt }]))[0];
}

/** A booking's snapshot is older than an earlier booking that it has waited for; this one's is not. */
async function findBooking(db: Database, id: bigint): Promise<Booking | undefined> {
  const { rows } = await statement<{ receipt: string }>`
    select receipt from x402_payment where id = ${id} and state = 'settled'`.execute(db);
  return rows[0] && { receipt: rows[0].receipt, isNew: false };
}
