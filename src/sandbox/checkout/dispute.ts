import { randomBytes } from 'node:crypto';
import { invalidParameter } from './api-error.ts';
import { type BalanceTransaction, balanceTransaction, presentTransaction } from './balance-transaction.ts';
import { existing } from './existing.ts';
import { chargeOf, type Payment } from './payment.ts';
import { now } from './session.ts';
import type { Change, State } from './store.ts';

/** Stripe's. */
export type DisputeStatus =
  | 'warning_needs_response'
  | 'warning_under_review'
  | 'warning_closed'
  | 'needs_response'
  | 'under_review'
  | 'appeal_needs_response'
  | 'appeal_under_review'
  | 'won'
  | 'lost'
  | 'prevented';

/** What a bank has asked back for a cardholder. Times are Unix seconds, amounts minor units. */
export interface Dispute {
  readonly id: string;
  readonly created: number;
  readonly paymentIntent: string;
  readonly amount: number;
  readonly currency: string;
  readonly status: DisputeStatus;
  /** Those that took the amount from the merchant and gave it back, oldest first. */
  readonly balanceTransactions: readonly string[];
}

const WITHDRAWN: readonly DisputeStatus[] = [
  ...(['needs_response', 'under_review', 'lost'] as const),
  ...(['appeal_needs_response', 'appeal_under_review'] as const),
];
const ANSWER_WITHIN_SECONDS = 7 * 24 * 60 * 60;

/** Whether the amount is the bank's: from the dispute's opening until it is won. An inquiry (`warning_…`) takes nothing. */
export const isWithdrawn = (status: DisputeStatus): boolean => WITHDRAWN.includes(status);

export interface DisputeParts {
  /** By default the whole charge; what was refunded before doesn't lessen it. */
  readonly amount?: number | undefined;
  readonly status?: DisputeStatus | undefined;
}

/** Opens a dispute of a payment. Throws ApiError for an amount that was not charged. */
export function openDispute(payment: Payment, parts: DisputeParts): { change: Change; dispute: Dispute } {
  const { amount = payment.amount, status = 'needs_response' } = parts;
  if (amount < 1 || amount > payment.amount) {
    throw invalidParameter('amount', 'parameter_invalid_integer', `The amount must be 1 to ${payment.amount}.`);
  }
  const id = `du_${randomBytes(12).toString('hex')}`;
  const dispute: Dispute = {
    ...{ id, created: now(), paymentIntent: payment.id, amount, currency: payment.currency, status },
    balanceTransactions: [],
  };
  const disputed = { ...payment, disputes: [...payment.disputes, id] };
  const { change, dispute: opened } = withBalance(dispute, isWithdrawn(status) ? 'withdraw' : undefined);
  return { change: { payments: [disputed], ...change }, dispute: opened };
}

/** Changes a dispute's status, and the balance with it. */
export function updateDispute(state: State, id: string, status: DisputeStatus): { change: Change; dispute: Dispute } {
  const former = existing(state, 'disputes', id);
  const [was, is] = [isWithdrawn(former.status), isWithdrawn(status)];
  return withBalance({ ...former, status }, was === is ? undefined : is ? 'withdraw' : 'reinstate');
}

function withBalance(dispute: Dispute, move: 'withdraw' | 'reinstate' | undefined) {
  if (!move) return { change: { disputes: [dispute] }, dispute };
  const charge = chargeOf(dispute.paymentIntent);
  const taken = move === 'withdraw';
  const transaction = balanceTransaction({
    amount: taken ? -dispute.amount : dispute.amount,
    currency: dispute.currency,
    type: 'adjustment',
    reportingCategory: taken ? 'dispute' : 'dispute_reversal',
    source: dispute.id,
    description: taken ? `Chargeback withdrawal for ${charge}` : `Chargeback reversal for ${charge}`,
  });
  const moved = { ...dispute, balanceTransactions: [...dispute.balanceTransactions, transaction.id] };
  return { change: { disputes: [moved], transactions: [transaction] }, dispute: moved };
}

/** As Stripe's API shows it; what the local checkout has no notion of is null or empty. */
export function presentDispute(dispute: Dispute, transactions: ReadonlyMap<string, BalanceTransaction>) {
  return {
    id: dispute.id,
    object: 'dispute',
    amount: dispute.amount,
    balance_transactions: dispute.balanceTransactions
      .map((id) => transactions.get(id))
      .filter((transaction) => transaction !== undefined)
      .map(presentTransaction),
    charge: chargeOf(dispute.paymentIntent),
    created: dispute.created,
    currency: dispute.currency,
    enhanced_eligibility_types: [],
    evidence: {},
    evidence_details: {
      due_by: dispute.created + ANSWER_WITHIN_SECONDS,
      enhanced_eligibility: {},
      has_evidence: false,
      past_due: false,
      submission_count: 0,
    },
    is_charge_refundable: !isWithdrawn(dispute.status),
    livemode: false,
    metadata: {},
    payment_intent: dispute.paymentIntent,
    reason: 'general',
    status: dispute.status,
  };
}
