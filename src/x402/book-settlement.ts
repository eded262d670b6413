import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { bookPayment } from '../ledger/settled-payment.ts';

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

/**
 * Records that a payment is settled and books its amount, in one statement: as revenue, or as the deposit of its payer,
 * whose wallet account comes into being with the first one. Undefined when the payment can't be settled from the state
 * that it is in. Safe to repeat after a lost answer.
 * @param receipt the PAYMENT-RESPONSE header
 */
export async function bookSettlement(
  db: Database,
  paymentId: bigint,
  { transaction, logIndex }: SettlementProof,
  receipt: string,
): Promise<Booking | undefined> {
  const { rows } = await statement<{ receipt: string }>`
    with payment as (
      update x402_payment
      set state = 'settled', settled_at = now(), lease_until = null, refusal = null, failed_at = null, next_look_at = null,
          transaction_hash = ${transaction}, log_index = ${logIndex}, receipt = ${receipt}
      where id = ${paymentId} and state in ('settling', 'refused', 'unknown', 'failed')
      returning id, purpose, payer, amount_micro_usd, receipt, trace_id
    ), ${bookPayment(fragment`payment`)}
    select receipt from payment`.execute(db);
  if (rows[0]) return { receipt: rows[0].receipt, isNew: true };
  // The statement's snapshot is older than an earlier booking that it has waited for; this one is not.
  const booked = await sql<{ receipt: string }>`
    select receipt from x402_payment where id = ${paymentId} and state = 'settled'`.execute(db);
  return booked.rows[0] && { receipt: booked.rows[0].receipt, isNew: false };
}
