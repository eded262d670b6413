import assert from 'node:assert/strict';
import type Stripe from 'stripe';

export const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

export const order = {
  mode: 'payment',
  line_items: [
    { quantity: 1, price_data: { currency: 'usd', unit_amount: 1250, product_data: { name: 'Speech <credits>' } } },
  ],
  success_url: 'http://127.0.0.1:8080/top-up/complete?session_id={CHECKOUT_SESSION_ID}',
  cancel_url: 'http://127.0.0.1:8080/top-up?amount=1250&account=x',
  metadata: { instance_id: 'i-1', 'odd name': 'a=b&c[d]' },
} as const satisfies Stripe.Checkout.SessionCreateParams;

export const get = (url: string) => fetch(url, { redirect: 'manual' });
export const choose = (url: string, card: 'accepted' | 'declined' | 'bank') =>
  fetch(url, { method: 'POST', headers: FORM, body: `card=${card}`, redirect: 'manual' });

export function urlOf(session: { url: string | null }): string {
  assert.ok(session.url);
  return session.url;
}

/** Pays a session of `order`. */
export async function purchase(stripe: Stripe): Promise<{ session: string; intent: string }> {
  const session = await stripe.checkout.sessions.create(order);
  assert.equal((await choose(urlOf(session), 'accepted')).status, 303);
  const { payment_intent } = await stripe.checkout.sessions.retrieve(session.id);
  return { session: session.id, intent: String(payment_intent) };
}

export async function chargeOf(stripe: Stripe, intent: string): Promise<Stripe.Charge> {
  const { latest_charge } = await stripe.paymentIntents.retrieve(intent, { expand: ['latest_charge'] });
  assert.ok(latest_charge && typeof latest_charge === 'object');
  return latest_charge;
}

/** The sum of the merchant's balance transactions. */
export async function balanceOf(stripe: Stripe): Promise<number> {
  let sum = 0;
  for await (const { net } of stripe.balanceTransactions.list({ limit: 100 })) sum += net;
  return sum;
}

export const idsOf = ({ data }: { readonly data: readonly { readonly id: string }[] }) => data.map(({ id }) => id);
