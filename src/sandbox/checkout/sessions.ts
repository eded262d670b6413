import { z } from 'zod';
import { ApiError } from './api-error.ts';
import {
  balanceTransaction,
  type Charge,
  chargeIdOf,
  newId,
  now,
  type PaymentIntent,
  type Session,
} from './objects.ts';
import { integer, metadata, text, webUrl } from './parameters.ts';
import type { Change, Store } from './store.ts';

const DAY_SECONDS = 24 * 60 * 60;
const SMALLEST_CHARGE = 50;
const LARGEST_CHARGE = 99_999_999;
/** Stripe Tax has one for each place and product. */
const TAX_RATE = 0.1;
const CURRENCIES = Intl.supportedValuesOf('currency').map((code) => code.toLowerCase());

const product = z.strictObject({ name: text(250) });
const currency = z
  .string()
  .toLowerCase()
  .refine((code) => CURRENCIES.includes(code), 'not an ISO 4217 code');
const price = z.strictObject({
  currency,
  unit_amount: integer(0, LARGEST_CHARGE),
  product_data: product,
  tax_behavior: z.literal('exclusive').optional(),
});
const lineItem = z.strictObject({ price_data: price, quantity: z.literal('1') });

export const sessionParameters = {
  mode: z.literal('payment'),
  automatic_tax: z.strictObject({ enabled: z.enum(['true', 'false']) }).optional(),
  line_items: z.strictObject({ 0: lineItem }),
  success_url: webUrl,
  cancel_url: webUrl.optional(),
  metadata,
};

/** Sells one line item, once, as the service does. */
export function createSession(origin: string, given: z.output<z.ZodObject<typeof sessionParameters>>): Change<Session> {
  const { currency, unit_amount: total, product_data } = given.line_items[0].price_data;
  if (total < SMALLEST_CHARGE || total > LARGEST_CHARGE) {
    const message = `The total must be from ${SMALLEST_CHARGE} to ${LARGEST_CHARGE} minor units, such as cents. Nothing was changed.`;
    throw new ApiError(400, message, { code: 'parameter_invalid', param: 'line_items' });
  }
  const tax = given.automatic_tax?.enabled === 'true' ? Math.round(total * TAX_RATE) : 0;
  const created = now();
  const id = newId('cs_test', 32);
  const session: Session = {
    id,
    object: 'checkout.session',
    amount_subtotal: total,
    amount_total: total + tax,
    total_details: { amount_discount: 0, amount_shipping: 0, amount_tax: tax },
    cancel_url: given.cancel_url ?? null,
    created,
    currency,
    customer_details: null,
    expires_at: created + DAY_SECONDS,
    line_items: { object: 'list', data: [{ description: product_data.name }] },
    livemode: false,
    metadata: given.metadata,
    mode: 'payment',
    payment_intent: null,
    payment_method_types: ['card'],
    payment_status: 'unpaid',
    status: 'open',
    success_url: given.success_url,
    url: `${origin}${payPath(id)}`,
  };
  return [session];
}

export const payPath = (id: string): string => `/c/pay/${id}`;

/** Nothing is stored when a session expires, so this computes it. */
export function current(session: Session): Session {
  const isOver = session.status === 'open' && now() >= session.expires_at;
  return isOver ? { ...session, status: 'expired', url: null } : session;
}

export function expireSession(session: Session): Change<Session> {
  const { status } = current(session);
  if (status === 'open') return [{ ...session, status: 'expired', url: null }];
  const open = 'Only Checkout Sessions with a status in ["open"] can be expired.';
  throw new ApiError(400, `${open} This Checkout Session has a status of ${status}.`);
}

export function paySession(session: Session, by: 'card' | 'bank', email: string | undefined): Change<Session> {
  const intent: PaymentIntent = {
    id: newId('pi'),
    object: 'payment_intent',
    amount: session.amount_total,
    amount_received: 0,
    created: now(),
    currency: session.currency,
    latest_charge: null,
    livemode: false,
    metadata: {},
    status: 'processing',
  };
  const complete: Session = {
    ...session,
    customer_details: email === undefined ? null : { email },
    payment_intent: intent.id,
    status: 'complete',
    url: null,
  };
  return by === 'card' ? receive(complete, intent) : [complete, intent];
}

export function endBankPayment(store: Store, id: string, end: 'arrived' | 'refused'): void {
  const session = store.get('checkout.session', id, 'session');
  const intent = store.find('payment_intent', session.payment_intent ?? '');
  if (intent?.status !== 'processing')
    throw new ApiError(400, `The session ${id} has no bank payment in progress. Nothing was changed.`);
  if (end === 'arrived') store.save(...receive(session, intent));
  else store.save({ ...intent, status: 'requires_payment_method' });
}

function receive(session: Session, intent: PaymentIntent): Change<Session> {
  const { amount, currency } = intent;
  const id = chargeIdOf(intent.id);
  const received = balanceTransaction('charge', amount, { id, currency });
  const charge: Charge = {
    id,
    object: 'charge',
    amount,
    amount_refunded: 0,
    balance_transaction: received.id,
    created: now(),
    currency,
    disputed: false,
    livemode: false,
    paid: true,
    payment_intent: intent.id,
    refunded: false,
    status: 'succeeded',
  };
  const succeeded: PaymentIntent = { ...intent, amount_received: amount, latest_charge: id, status: 'succeeded' };
  return [{ ...session, payment_status: 'paid' }, succeeded, charge, received];
}
