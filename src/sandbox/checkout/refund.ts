import { randomBytes } from 'node:crypto';
import { ApiError, invalidParameter } from './api-error.ts';
import { balanceTransaction } from './balance-transaction.ts';
import { isWithdrawn } from './dispute.ts';
import { existing } from './existing.ts';
import { chargeOf, type Payment } from './payment.ts';
import { now } from './session.ts';
import type { Change, State } from './store.ts';

export type RefundStatus = 'pending' | 'requires_action' | 'succeeded' | 'failed' | 'canceled';
/** The statuses that a new refund may have. */
export type NewRefundStatus = Exclude<RefundStatus, 'failed' | 'canceled'>;
export const REFUND_REASONS = ['duplicate', 'fraudulent', 'requested_by_customer'] as const;
export type RefundReason = (typeof REFUND_REASONS)[number];

/** Times are Unix seconds, amounts minor units. */
export interface Refund {
  readonly id: string;
  readonly created: number;
  readonly paymentIntent: string;
  readonly amount: number;
  readonly currency: string;
  readonly status: RefundStatus;
  readonly reason: RefundReason | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly balanceTransaction: string;
  /** That which gave the amount back to the merchant when the refund failed or was canceled. */
  readonly failureBalanceTransaction: string | null;
}

export interface RefundParts {
  /** By default all that is left. */
  readonly amount?: number | undefined;
  readonly status?: NewRefundStatus | undefined;
  readonly reason?: RefundReason | undefined;
  readonly metadata?: Readonly<Record<string, string>>;
}

/** Gives a part of a payment back. Throws ApiError where Stripe refuses it: charged back, or more than is left. */
export function makeRefund(state: State, payment: Payment, parts: RefundParts): { change: Change; refund: Refund } {
  const { status = 'succeeded', reason = null, metadata = {} } = parts;
  const charge = chargeOf(payment.id);
  if (payment.disputes.some((id) => isWithdrawn(existing(state, 'disputes', id).status))) {
    throw refused('charge_disputed', `Charge ${charge} has been charged back; cannot issue a refund.`);
  }
  const left = payment.amount - payment.amountRefunded;
  if (left === 0) throw refused('charge_already_refunded', `Charge ${charge} has already been refunded.`);
  const amount = parts.amount ?? left;
  if (amount < 1) throw invalidParameter('amount', 'parameter_invalid_integer', 'Invalid positive integer');
  if (amount > left) {
    const message = `Refund amount (${amount}) is greater than unrefunded amount on charge (${left})`;
    throw new ApiError(400, 'invalid_request_error', message, { param: 'amount' });
  }

  const id = `re_${randomBytes(12).toString('hex')}`;
  const { currency } = payment;
  const taken = balanceTransaction({
    ...{ amount: -amount, currency, type: 'refund', reportingCategory: 'refund', source: id },
    description: `Refund of ${charge}`,
  });
  const refund: Refund = {
    ...{ id, created: now(), paymentIntent: payment.id, amount, currency, status, reason, metadata },
    balanceTransaction: taken.id,
    failureBalanceTransaction: null,
  };
  const refunded = { ...payment, amountRefunded: payment.amountRefunded + amount };
  return { change: { payments: [refunded], refunds: [refund], transactions: [taken] }, refund };
}

/**
 * Lets a refund come out, later than it was made. One that fails, which one that succeeded may too, gives its amount
 * back to the merchant. Throws ApiError when it has failed or was canceled before: that is final.
 */
export function settleRefund(state: State, id: string, status: RefundStatus): { change: Change; refund: Refund } {
  const former = existing(state, 'refunds', id);
  if (former.failureBalanceTransaction) throw refused('refund_final', `Refund ${id} is ${former.status}.`);
  if (status !== 'failed' && status !== 'canceled') {
    const refund = { ...former, status };
    return { change: { refunds: [refund] }, refund };
  }
  const { amount, currency } = former;
  const returned = balanceTransaction({
    ...{ amount, currency, type: 'refund_failure', reportingCategory: 'refund_failure', source: id },
    description: `Refund ${id} ${status}`,
  });
  const refund = { ...former, status, failureBalanceTransaction: returned.id };
  const payment = existing(state, 'payments', former.paymentIntent);
  const charged = { ...payment, amountRefunded: payment.amountRefunded - amount };
  return { change: { payments: [charged], refunds: [refund], transactions: [returned] }, refund };
}

const refused = (code: string, message: string) => new ApiError(400, 'invalid_request_error', message, { code });

/** As Stripe's API shows it. */
export function presentRefund(refund: Refund) {
  return {
    id: refund.id,
    object: 'refund',
    amount: refund.amount,
    balance_transaction: refund.balanceTransaction,
    charge: chargeOf(refund.paymentIntent),
    created: refund.created,
    currency: refund.currency,
    ...(refund.failureBalanceTransaction && { failure_balance_transaction: refund.failureBalanceTransaction }),
    ...(refund.status === 'failed' && { failure_reason: 'unknown' }),
    metadata: refund.metadata,
    payment_intent: refund.paymentIntent,
    payment_method: null,
    ...(refund.status === 'pending' && { pending_reason: 'processing' }),
    reason: refund.reason,
    receipt_number: null,
    source_transfer_reversal: null,
    status: refund.status,
    transfer_reversal: null,
  };
}
