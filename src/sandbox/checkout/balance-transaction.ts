import { randomBytes } from 'node:crypto';
import { now } from './session.ts';

/** A change of what the processor holds for the merchant. It never changes. */
export interface BalanceTransaction {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  /** In the currency's minor unit; below 0 when it is taken from the merchant. */
  readonly amount: number;
  readonly currency: string;
  readonly type: 'charge' | 'refund' | 'refund_failure' | 'adjustment';
  readonly reportingCategory: 'charge' | 'refund' | 'refund_failure' | 'dispute' | 'dispute_reversal';
  /** The charge, refund or dispute that it is about. */
  readonly source: string;
  readonly description: string;
}

export function balanceTransaction(parts: Omit<BalanceTransaction, 'id' | 'created'>, created = now()) {
  return { id: `txn_${randomBytes(12).toString('hex')}`, created, ...parts } satisfies BalanceTransaction;
}

/** As Stripe's API shows it. The local checkout takes no fee and makes everything available at once. */
export function presentTransaction(transaction: BalanceTransaction) {
  return {
    id: transaction.id,
    object: 'balance_transaction',
    amount: transaction.amount,
    available_on: transaction.created,
    balance_type: 'payments',
    created: transaction.created,
    currency: transaction.currency,
    description: transaction.description,
    exchange_rate: null,
    fee: 0,
    fee_details: [],
    net: transaction.amount,
    reporting_category: transaction.reportingCategory,
    source: transaction.source,
    status: 'available',
    type: transaction.type,
  };
}
