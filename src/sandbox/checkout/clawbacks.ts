import { ApiError } from './api-error.ts';
import {
  balanceTransaction,
  type Charge,
  chargeIdOf,
  type Dispute,
  newId,
  now,
  type Refund,
  type RefundStatus,
} from './objects.ts';
import type { Change, Store } from './store.ts';

interface ClawbackRequest<Status> {
  readonly session: string;
  readonly amountCents?: number | undefined;
  readonly status?: Status;
}

export type RefundRequest = ClawbackRequest<Exclude<RefundStatus, 'failed' | 'canceled'>>;
export type DisputeRequest = ClawbackRequest<Dispute['status']>;

const WITHDRAWN: readonly Dispute['status'][] = [
  'needs_response',
  'under_review',
  'lost',
  'appeal_needs_response',
  'appeal_under_review',
];

/** True while the bank holds the amount, until the dispute is won. Inquiries (`warning_…`) take nothing. */
export const isWithdrawn = (status: Dispute['status']): boolean => WITHDRAWN.includes(status);

function chargeOfSession(store: Store, id: string): Charge {
  const { payment_intent } = store.get('checkout.session', id, 'session');
  return store.get('charge', chargeIdOf(String(payment_intent)), 'payment_intent');
}

export function newRefund(
  store: Store,
  charge: Charge,
  parts: {
    readonly amount?: number | undefined;
    readonly status?: RefundStatus;
    readonly metadata?: Readonly<Record<string, string>>;
  },
): Change<Refund> {
  const { id: charged, currency, payment_intent } = charge;
  const { status = 'succeeded', metadata = {} } = parts;
  if (store.all('dispute').some((dispute) => dispute.charge === charged && isWithdrawn(dispute.status))) {
    const message = `Charge ${charged} has been charged back; cannot issue a refund.`;
    throw new ApiError(400, message, { code: 'charge_disputed' });
  }
  const left = charge.amount - charge.amount_refunded;
  if (left === 0) {
    const message = `Charge ${charged} has already been refunded.`;
    throw new ApiError(400, message, { code: 'charge_already_refunded' });
  }
  const { amount = left } = parts;
  if (amount > left) {
    const message = `Refund amount (${amount}) is greater than unrefunded amount on charge (${left})`;
    throw new ApiError(400, message, { param: 'amount' });
  }
  const id = newId('re');
  const withdrawal = balanceTransaction('refund', -amount, { id, currency });
  const refund: Refund = {
    id,
    object: 'refund',
    amount,
    balance_transaction: withdrawal.id,
    charge: charged,
    created: now(),
    currency,
    metadata,
    payment_intent,
    reason: null,
    status,
  };
  return [refund, refunded(charge, amount), withdrawal];
}

const refunded = (charge: Charge, amount: number): Charge => {
  const total = charge.amount_refunded + amount;
  return { ...charge, amount_refunded: total, refunded: total === charge.amount };
};

export function refund(store: Store, { session, amountCents: amount, status = 'succeeded' }: RefundRequest): Refund {
  return store.save(...newRefund(store, chargeOfSession(store, session), { amount, status }));
}

/** A failed or canceled refund returns its amount to the merchant and is final. A succeeded one can still fail. */
export function settleRefund(store: Store, id: string, status: RefundStatus): Refund {
  const former = store.get('refund', id);
  if (former.failure_balance_transaction) throw new ApiError(400, `Refund ${id} is ${former.status}.`);
  if (status !== 'failed' && status !== 'canceled') return store.save({ ...former, status });
  const returned = balanceTransaction('refund_failure', former.amount, former);
  const ended: Refund = { ...former, status, failure_balance_transaction: returned.id };
  const reason = status === 'failed' && { failure_reason: 'unknown' };
  return store.save({ ...ended, ...reason }, refunded(store.get('charge', former.charge), -former.amount), returned);
}

export function openDispute(store: Store, request: DisputeRequest): Dispute {
  const charge = chargeOfSession(store, request.session);
  const { amountCents: amount = charge.amount, status = 'needs_response' } = request;
  if (amount < 1 || amount > charge.amount) {
    throw new ApiError(
      400,
      `The amount must be from 1 to ${charge.amount}, in the smallest unit of the currency, such as cents. Nothing was changed.`,
      { param: 'amount' },
    );
  }
  const dispute: Dispute = {
    id: newId('du'),
    object: 'dispute',
    amount,
    balance_transactions: [],
    charge: charge.id,
    created: now(),
    currency: charge.currency,
    is_charge_refundable: true,
    livemode: false,
    metadata: {},
    payment_intent: charge.payment_intent,
    reason: 'general',
    status: 'warning_needs_response',
  };
  return store.save(...turned(dispute, status), { ...charge, disputed: true });
}

export function updateDispute(store: Store, id: string, status: Dispute['status']): Dispute {
  return store.save(...turned(store.get('dispute', id), status));
}

function turned(former: Dispute, status: Dispute['status']): Change<Dispute> {
  const isTaken = isWithdrawn(status);
  const dispute: Dispute = { ...former, status, is_charge_refundable: !isTaken };
  if (isTaken === isWithdrawn(former.status)) return [dispute];
  const moved = isTaken
    ? balanceTransaction('dispute', -dispute.amount, dispute)
    : balanceTransaction('dispute_reversal', dispute.amount, dispute);
  return [{ ...dispute, balance_transactions: [...dispute.balance_transactions, moved] }, moved];
}
