import { randomBytes } from 'node:crypto';
import { ApiError, invalidParameter } from './api-error.ts';
import type { Parameters } from './parameters.ts';

export interface LineItem {
  readonly name: string;
  readonly description: string | null;
  /** In the currency's minor unit. */
  readonly unitAmount: number;
  readonly quantity: number;
}

/** A checkout session as it is stored. Times are Unix seconds. */
export interface Session {
  readonly id: string;
  readonly created: number;
  readonly expiresAt: number;
  /**
   * What happened to it. A bank payment is on its way until the money arrives or the bank refuses. That an open session's
   * time has run out is not stored: see statusOf.
   */
  readonly state: 'open' | 'paid' | 'expired' | BankPayment;
  readonly paymentIntent: string | null;
  readonly currency: string;
  readonly lineItems: readonly LineItem[];
  readonly successUrl: string;
  readonly cancelUrl: string | null;
  readonly clientReferenceId: string | null;
  readonly customerEmail: string | null;
  /** That the buyer gave on the page; absent where none was given. */
  readonly buyerEmail?: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** Of the payment intent; absent from what release 2.0 has stored. */
  readonly intent?: { readonly description: string | null; readonly metadata: Readonly<Record<string, string>> };
}

/** How far a payment from a bank account is that has not brought its money. */
export type BankPayment = 'on_its_way' | 'refused';

const MINUTE = 60;
const DAY = 24 * 60 * MINUTE;
/** Stripe's bounds of one charge, in the minor unit; the lower one is that of the US dollar. */
const SMALLEST_CHARGE = 50;
const LARGEST_CHARGE = 99_999_999;
const CURRENCIES = new Set(Intl.supportedValuesOf('currency').map((code) => code.toLowerCase()));

export const now = (): number => Math.floor(Date.now() / 1000);

/** Reads the parameters of `POST /v1/checkout/sessions`: one payment, with prices named in the call itself. */
export function createSession(parameters: Parameters): Session {
  const created = now();
  parameters.required('mode', parameters.choice('mode', ['payment']));
  parameters.choice('ui_mode', ['hosted', 'hosted_page']);
  parameters.values('payment_method_types', 20);
  parameters.text('submit_type', 100);
  parameters.text('locale', 100);
  const intentData = parameters.group('payment_intent_data');
  const intent = {
    description: intentData?.text('description', 1000) ?? null,
    metadata: intentData?.metadata('metadata') ?? {},
  };
  intentData?.text('statement_descriptor', 22);
  intentData?.text('statement_descriptor_suffix', 22);
  intentData?.text('receipt_email', 500);
  intentData?.end();

  const items = parameters.list('line_items', 100).map(readLineItem);
  const currency = parameters.required('line_items', items[0]).currency;
  const total = items.reduce((sum, { item }) => sum + item.unitAmount * item.quantity, 0);
  if (items.some((each) => each.currency !== currency)) {
    throw invalidParameter('line_items', 'parameter_invalid', 'All line_items must have the same currency.');
  }
  if (total < SMALLEST_CHARGE || total > LARGEST_CHARGE) {
    const code = total < SMALLEST_CHARGE ? 'amount_too_small' : 'amount_too_large';
    const range = `${SMALLEST_CHARGE} to ${LARGEST_CHARGE}`;
    throw invalidParameter('line_items', code, `The total must be ${range} in the currency's minor unit.`);
  }
  const expiresAt = parameters.integer('expires_at', created + 30 * MINUTE, created + DAY) ?? created + DAY;
  const session: Session = {
    id: `cs_test_${randomBytes(32).toString('hex')}`,
    created,
    expiresAt,
    state: 'open',
    paymentIntent: null,
    currency,
    lineItems: items.map(({ item }) => item),
    successUrl: parameters.required('success_url', parameters.url('success_url')),
    cancelUrl: parameters.url('cancel_url') ?? null,
    clientReferenceId: parameters.text('client_reference_id', 200) ?? null,
    customerEmail: parameters.text('customer_email', 800) ?? null,
    metadata: parameters.metadata('metadata'),
    intent,
  };
  parameters.end();
  return session;
}

function readLineItem(entry: Parameters): { currency: string; item: LineItem } {
  const price = entry.required('price_data', entry.group('price_data'));
  const product = price.required('product_data', price.group('product_data'));
  const currency = price.required('currency', price.text('currency', 10)).toLowerCase();
  if (!CURRENCIES.has(currency)) {
    throw invalidParameter(price.name('currency'), 'parameter_invalid', 'The currency is no ISO 4217 code.');
  }
  const item = {
    name: product.required('name', product.text('name', 250)),
    description: product.text('description', 1000) ?? null,
    unitAmount: price.required('unit_amount', price.integer('unit_amount', 0, LARGEST_CHARGE)),
    quantity: entry.required('quantity', entry.integer('quantity', 1, 1_000_000)),
  };
  for (const parameters of [product, price, entry]) parameters.end();
  return { currency, item };
}

/** Stripe's three statuses. */
export function statusOf(session: Session): 'open' | 'complete' | 'expired' {
  if (session.state === 'expired') return 'expired';
  if (session.state !== 'open') return 'complete';
  return now() >= session.expiresAt ? 'expired' : 'open';
}

/** Throws ApiError for a session that is not open, as Stripe does. */
export function expire(session: Session): Session {
  const status = statusOf(session);
  if (status === 'open') return { ...session, state: 'expired' };
  throw new ApiError(
    400,
    'invalid_request_error',
    `Only Checkout Sessions with a status in ["open"] can be expired. This Checkout Session has a status of ${status}.`,
  );
}

export const totalOf = (session: Session): number =>
  session.lineItems.reduce((sum, item) => sum + item.unitAmount * item.quantity, 0);

/** Where the buyer goes after paying. */
export function successUrlOf(session: Session): URL {
  return new URL(session.successUrl.replaceAll('{CHECKOUT_SESSION_ID}', session.id));
}

export const payPath = (id: string): string => `/c/pay/${id}`;

const customerDetails = (email: string) => ({
  ...{ address: null, business_name: null, email, individual_name: null, name: null, phone: null },
  ...{ tax_exempt: 'none', tax_ids: [] },
});

/** The session as Stripe's API shows it; what the local checkout has no notion of is null or empty. */
export function present(session: Session, origin: string) {
  const status = statusOf(session);
  const total = totalOf(session);
  return {
    id: session.id,
    object: 'checkout.session',
    amount_subtotal: total,
    amount_total: total,
    automatic_tax: { enabled: false, liability: null, provider: null, status: null },
    cancel_url: session.cancelUrl,
    client_reference_id: session.clientReferenceId,
    client_secret: null,
    created: session.created,
    currency: session.currency,
    custom_fields: [],
    custom_text: {},
    customer: null,
    customer_creation: 'if_required',
    customer_details: session.buyerEmail === undefined ? null : customerDetails(session.buyerEmail),
    customer_email: session.customerEmail,
    discounts: [],
    expires_at: session.expiresAt,
    invoice: null,
    livemode: false,
    locale: null,
    metadata: session.metadata,
    mode: 'payment',
    payment_intent: session.paymentIntent,
    payment_link: null,
    payment_method_types: ['card'],
    payment_status: session.state === 'paid' ? 'paid' : 'unpaid',
    recovered_from: null,
    setup_intent: null,
    shipping_options: [],
    status,
    submit_type: null,
    subscription: null,
    success_url: session.successUrl,
    total_details: { amount_discount: 0, amount_shipping: 0, amount_tax: 0 },
    ui_mode: 'hosted',
    url: status === 'open' ? `${origin}${payPath(session.id)}` : null,
  };
}
