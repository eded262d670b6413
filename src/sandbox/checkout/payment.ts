import { randomBytes } from 'node:crypto';
import { ApiError } from './api-error.ts';
import { balanceTransaction } from './balance-transaction.ts';
import { now, type Session, totalOf } from './session.ts';
import type { Change } from './store.ts';

/** What was paid for a session: a payment intent and its one charge. Times are Unix seconds, amounts minor units. */
export interface Payment {
  /** Of the payment intent. */
  readonly id: string;
  readonly created: number;
  readonly amount: number;
  readonly currency: string;
  /** By refunds that have not failed. */
  readonly amountRefunded: number;
  /** Ids of its disputes, oldest first. */
  readonly disputes: readonly string[];
  readonly balanceTransaction: string;
  readonly description: string | null;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A charge has the digits of its payment intent. */
export const chargeOf = (paymentIntent: string): string => paymentIntent.replace(/^pi_/, 'ch_');

/** The payment of a session, and what it brings to the balance. */
export function takePayment(session: Session, { id, created }: { id: string; created: number }) {
  const amount = totalOf(session);
  const { currency } = session;
  const brought = balanceTransaction(
    { amount, currency, type: 'charge', reportingCategory: 'charge', source: chargeOf(id), description: 'Payment' },
    created,
  );
  const payment: Payment = {
    id,
    created,
    amount,
    currency,
    amountRefunded: 0,
    disputes: [],
    balanceTransaction: brought.id,
    description: session.intent?.description ?? null,
    metadata: session.intent?.metadata ?? {},
  };
  return { payments: [payment], transactions: [brought] } as const satisfies Change;
}

/** Completes an open session. @param email of the buyer, if they gave one */
export function pay(
  session: Session,
  by: 'card' | 'bank',
  email: string | undefined,
): { change: Change; paid: Session } {
  const id = `pi_${randomBytes(12).toString('hex')}`;
  const buyer = email === undefined ? {} : { buyerEmail: email };
  const sent: Session = { ...session, ...buyer, state: 'on_its_way', paymentIntent: id };
  if (by === 'bank') return { change: { sessions: [sent] }, paid: sent };
  const change = endBankPayment(sent, 'arrived');
  return { change, paid: { ...sent, state: 'paid' } };
}

/** Lets a bank payment arrive, or be refused. */
export function endBankPayment(session: Session, end: 'arrived' | 'refused'): Change {
  const { state, paymentIntent } = session;
  if (state !== 'on_its_way' || paymentIntent === null) {
    throw new ApiError(400, 'invalid_request_error', `No bank payment of ${session.id} is on its way.`);
  }
  if (end === 'refused') return { sessions: [{ ...session, state: 'refused' }] };
  const paid: Session = { ...session, state: 'paid' };
  return { sessions: [paid], ...takePayment(paid, { id: paymentIntent, created: now() }) };
}

/** The charge as Stripe's API shows it; what the local checkout has no notion of is null or empty. */
export function presentCharge(payment: Payment) {
  return {
    id: chargeOf(payment.id),
    object: 'charge',
    amount: payment.amount,
    amount_captured: payment.amount,
    amount_refunded: payment.amountRefunded,
    application: null,
    application_fee: null,
    application_fee_amount: null,
    balance_transaction: payment.balanceTransaction,
    billing_details: { address: null, email: null, name: null, phone: null, tax_id: null },
    calculated_statement_descriptor: null,
    captured: true,
    created: payment.created,
    currency: payment.currency,
    customer: null,
    description: payment.description,
    disputed: payment.disputes.length > 0,
    failure_balance_transaction: null,
    failure_code: null,
    failure_message: null,
    fraud_details: {},
    livemode: false,
    metadata: payment.metadata,
    on_behalf_of: null,
    outcome: null,
    paid: true,
    payment_intent: payment.id,
    payment_method: null,
    payment_method_details: null,
    receipt_email: null,
    receipt_number: null,
    receipt_url: null,
    refunded: payment.amountRefunded === payment.amount,
    review: null,
    shipping: null,
    source: null,
    source_transfer: null,
    statement_descriptor: null,
    statement_descriptor_suffix: null,
    status: 'succeeded',
    transfer_data: null,
    transfer_group: null,
  };
}
