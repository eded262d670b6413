import { ApiError } from './api-error.ts';
import { chargeOf, type Payment } from './payment.ts';
import type { State } from './store.ts';

const NAMES = {
  sessions: 'checkout.session',
  payments: 'payment_intent',
  refunds: 'refund',
  disputes: 'dispute',
  transactions: 'balance_transaction',
} as const;

type Kind = keyof typeof NAMES;
type RecordOf<K extends Kind> = State[K] extends ReadonlyMap<string, infer Found> ? Found : never;

/**
 * The record of that id. Throws ApiError 404 as Stripe does.
 * @param param where the id was given
 */
export function existing<K extends Kind>(state: State, kind: K, id: string, param = 'id'): RecordOf<K> {
  const found = state[kind].get(id);
  if (found) return found as RecordOf<K>;
  throw missing(NAMES[kind], id, param);
}

/** The payment of that charge, likewise. */
export function existingCharge(state: State, charge: string, param = 'id'): Payment {
  const payment = state.payments.get(charge.replace(/^ch_/, 'pi_'));
  if (payment && chargeOf(payment.id) === charge) return payment;
  throw missing('charge', charge, param);
}

const missing = (name: string, id: string, param: string) =>
  new ApiError(404, 'invalid_request_error', `No such ${name}: '${id.slice(0, 200)}'`, {
    code: 'resource_missing',
    param,
  });
