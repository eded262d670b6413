import { type Booking, failureReceipt } from '../x402/book-settlement.ts';
import type { Exposure } from '../x402/exposure.ts';
import type { FacilitatorPayment } from '../x402/facilitator.ts';
import type { Payment } from '../x402/payment.ts';
import { NOTHING_CHARGED, unknownPayment } from './payment-outcome.ts';
import { type Refused, refused } from './refusal.ts';

/** What has become of a payment that an earlier request made. */
export type PaymentStatus =
  | ({ readonly outcome: 'settled'; readonly isReplayable: boolean } & Booking)
  /** Only the chain can tell. `transaction` is the one whose depth is waited for. */
  | { readonly outcome: 'open'; readonly transaction: string | null }
  | Refused<'PAYMENT_IDENTIFIER_CONFLICT' | 'PAYMENT_REPLAY_PENDING' | 'PAYMENT_REQUIRED'>;

/** A payment that an earlier request made under this identifier. */
export interface KnownPayment {
  readonly outcome: 'known';
  readonly payment: Payment;
  readonly status: PaymentStatus;
}

/** A payment that was made by its payer, and whose identifier and authorization are reserved. */
export interface Reserved {
  readonly outcome: 'reserved';
  readonly payment: Payment;
  /** What its payer had under way before it, where the reservation told. */
  readonly exposure?: Exposure;
  readonly verifiable: FacilitatorPayment;
  /** The facilitator has said yes already. */
  readonly isVerified: boolean;
}

/** The refusal of a payment whose settlement was refused, which may still land (R23), or has failed for good. */
export const settlementRefused = (payment: Payment, reason: string, hasFailed = false) =>
  refused('PAYMENT_REQUIRED', reason, {
    receipt: { 'payment-response': failureReceipt(payment, reason) },
    payment: hasFailed ? NOTHING_CHARGED : unknownPayment(payment.claim.amount),
  });
