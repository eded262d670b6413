import { ApiError } from './api-error.ts';
import { presentTransaction } from './balance-transaction.ts';
import { presentDispute } from './dispute.ts';
import { existing, existingCharge } from './existing.ts';
import type { Parameters } from './parameters.ts';
import { presentCharge } from './payment.ts';
import { presentIntentOf } from './payment-intent.ts';
import { presentRefund } from './refund.ts';
import type { State } from './store.ts';

/** Fields that hold the id of another object. */
const EXPANDABLE = new Set([
  'payment_intent',
  'latest_charge',
  'charge',
  'balance_transaction',
  'failure_balance_transaction',
  'source',
]);

/** Stripe's limit, `data` of a list included. */
const MAX_DEPTH = 4;

/** Takes the parameter `expand`: the fields whose objects are wanted in the place of their ids. */
export function readExpansions(parameters: Parameters): (object: object, state: () => State) => object {
  const paths = parameters.values('expand', 20).map((path) => path.split('.'));
  for (const path of paths) if (path.length > MAX_DEPTH) throw refused(path, 'more than 4 levels deep');
  return (object, state) => {
    for (const path of paths) expand(object, path, path, state());
    return object;
  };
}

function expand(object: object, steps: readonly string[], path: readonly string[], state: State): void {
  const [step, ...further] = steps;
  if (step === undefined) return;
  const fields = object as Record<string, unknown>;
  const value = fields[step];
  if (step === 'data' && Array.isArray(value)) {
    for (const each of value) expand(each, further, path, state);
    return;
  }
  if (!EXPANDABLE.has(step) || value === undefined) throw refused(path, 'no field that holds an object');
  if (value === null) return;
  if (typeof value === 'string') fields[step] = objectOf(state, value);
  expand(fields[step] as object, further, path, state);
}

function objectOf(state: State, id: string): object {
  if (id.startsWith('pi_')) return presentIntentOf(state, id);
  if (id.startsWith('ch_')) return presentCharge(existingCharge(state, id));
  if (id.startsWith('re_')) return presentRefund(existing(state, 'refunds', id));
  if (id.startsWith('du_')) return presentDispute(existing(state, 'disputes', id), state.transactions);
  return presentTransaction(existing(state, 'transactions', id));
}

const refused = (path: readonly string[], why: string) =>
  new ApiError(
    400,
    'invalid_request_error',
    `This property cannot be expanded (${path.join('.').slice(0, 200)}): it is ${why}.`,
    { param: 'expand' },
  );
