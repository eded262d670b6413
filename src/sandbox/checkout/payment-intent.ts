import { existing } from './existing.ts';
import { chargeOf, type Payment, takePayment } from './payment.ts';
import type { State } from './store.ts';

/** The payment intent of that id as Stripe's API shows it. Throws ApiError 404 as Stripe does. */
export function presentIntentOf(state: State, id: string) {
  const session = [...state.sessions.values()].find(({ paymentIntent }) => paymentIntent === id);
  if (!session || (session.state !== 'on_its_way' && session.state !== 'refused')) {
    return presentIntent(existing(state, 'payments', id, 'intent'));
  }
  const [payment] = takePayment(session, { id, created: session.created }).payments;
  return {
    ...presentIntent(payment),
    ...{ amount_received: 0, latest_charge: null },
    status: session.state === 'refused' ? 'requires_payment_method' : 'processing',
  };
}

/** The payment intent of a payment that succeeded; what the local checkout has no notion of is null or empty. */
function presentIntent(payment: Payment) {
  return {
    id: payment.id,
    object: 'payment_intent',
    amount: payment.amount,
    amount_capturable: 0,
    amount_received: payment.amount,
    application: null,
    application_fee_amount: null,
    automatic_payment_methods: null,
    canceled_at: null,
    cancellation_reason: null,
    capture_method: 'automatic',
    client_secret: null,
    confirmation_method: 'automatic',
    created: payment.created,
    currency: payment.currency,
    customer: null,
    description: payment.description,
    last_payment_error: null,
    latest_charge: chargeOf(payment.id),
    livemode: false,
    metadata: payment.metadata,
    next_action: null,
    on_behalf_of: null,
    payment_method: null,
    payment_method_options: null,
    payment_method_types: ['card'],
    processing: null,
    receipt_email: null,
    review: null,
    setup_future_usage: null,
    shipping: null,
    source: null,
    statement_descriptor: null,
    statement_descriptor_suffix: null,
    status: 'succeeded',
    transfer_data: null,
    transfer_group: null,
  };
}
