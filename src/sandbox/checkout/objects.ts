import { randomBytes } from 'node:crypto';
import type Stripe from 'stripe';

/* Stripe's objects, as far as the service reads them. Times are Unix seconds, amounts minor units of the currency. */

interface Common<Kind extends string> {
  readonly id: string;
  readonly object: Kind;
  readonly created: number;
  readonly currency: string;
}

interface Amount<Kind extends string> extends Common<Kind> {
  readonly amount: number;
}

export type Session = Omit<Partial<Stripe.Checkout.Session>, 'line_items' | 'customer_details'> &
  Common<'checkout.session'> & {
    readonly metadata: Readonly<Record<string, string>>;
    readonly amount_total: number;
    readonly customer_details: { readonly email: string } | null;
    readonly expires_at: number;
    readonly line_items: { readonly object: 'list'; readonly data: readonly { readonly description: string }[] };
    readonly payment_intent: string | null;
    readonly success_url: string;
  };

export type PaymentIntent = Partial<Stripe.PaymentIntent> &
  Amount<'payment_intent'> & { readonly latest_charge: string | null };

export type Charge = Partial<Stripe.Charge> &
  Amount<'charge'> & { readonly amount_refunded: number; readonly payment_intent: string };

export type RefundStatus = 'pending' | 'requires_action' | 'succeeded' | 'failed' | 'canceled';

export type Refund = Partial<Stripe.Refund> &
  Amount<'refund'> & {
    readonly charge: string;
    readonly failure_balance_transaction?: string;
    readonly payment_intent: string;
    readonly status: RefundStatus;
  };

export type Dispute = Partial<Omit<Stripe.Dispute, 'balance_transactions'>> &
  Amount<'dispute'> & {
    readonly balance_transactions: readonly BalanceTransaction[];
    readonly charge: string;
    readonly payment_intent: string;
    readonly status: Stripe.Dispute.Status;
  };

export type BalanceTransaction = Partial<Stripe.BalanceTransaction> & Amount<'balance_transaction'>;

export interface ObjectKinds {
  'checkout.session': Session;
  payment_intent: PaymentIntent;
  charge: Charge;
  refund: Refund;
  dispute: Dispute;
  balance_transaction: BalanceTransaction;
}

export const now = (): number => Math.floor(Date.now() / 1000);

export const newId = (prefix: string, bytes = 12): string => `${prefix}_${randomBytes(bytes).toString('hex')}`;

export const chargeIdOf = (paymentIntent: string): string => paymentIntent.replace(/^pi_/, 'ch_');

/** Changes the merchant's balance. The local checkout takes no fee. */
export function balanceTransaction(
  category: 'charge' | 'refund' | 'refund_failure' | 'dispute' | 'dispute_reversal',
  amount: number,
  source: { readonly id: string; readonly currency: string },
): BalanceTransaction {
  const created = now();
  return {
    id: newId('txn'),
    object: 'balance_transaction',
    amount,
    available_on: created,
    created,
    currency: source.currency,
    description: `${category} of ${source.id}`,
    fee: 0,
    net: amount,
    reporting_category: category,
    source: source.id,
    status: 'available',
    type: category === 'dispute' || category === 'dispute_reversal' ? 'adjustment' : category,
  };
}
