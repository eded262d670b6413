import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Stripe from 'stripe';
import type { Test } from 'tap';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { operationsOn } from '../support/checkout-operations.ts';

export const KEY = 'sk_test_checkout';
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

export async function setUp(t: Test) {
  const dataDir = await newDirectory(t);
  const checkout = await startCheckout({ dataDir, secretKey: KEY, merchant: 'Tom & Co' });
  t.teardown(checkout.close);
  return { ...checkout, ...operationsOn(checkout), dataDir, stripe: client(checkout.apiBase) };
}

export async function newDirectory(t: Test): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'speechgate-checkout-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

export function client(apiBase: string, key = KEY): Stripe {
  const { hostname, port } = new URL(apiBase);
  return new Stripe(key, { host: hostname, port, protocol: 'http', telemetry: false, maxNetworkRetries: 0 });
}

export const get = (url: string) => fetch(url, { redirect: 'manual' });
export const choose = (url: string, card: 'accepted' | 'declined' | 'bank') =>
  fetch(url, { method: 'POST', headers: FORM, body: `card=${card}`, redirect: 'manual' });

export function urlOf(session: { url: string | null }): string {
  assert.ok(session.url);
  return session.url;
}

/** A session of `order` that was paid. */
export async function purchase(stripe: Stripe): Promise<{ session: string; intent: string; charge: string }> {
  const session = await stripe.checkout.sessions.create(order);
  assert.equal((await choose(urlOf(session), 'accepted')).status, 303);
  const { payment_intent } = await stripe.checkout.sessions.retrieve(session.id, { expand: ['payment_intent'] });
  assert.ok(payment_intent && typeof payment_intent === 'object');
  return { session: session.id, intent: payment_intent.id, charge: String(payment_intent.latest_charge) };
}

/** What the processor has of the merchant: the sum of its balance transactions. */
export async function balanceOf(stripe: Stripe): Promise<number> {
  let sum = 0;
  for await (const { net } of stripe.balanceTransactions.list({ limit: 100 })) sum += net;
  return sum;
}

export const idsOf = ({ data }: { readonly data: readonly { readonly id: string }[] }) => data.map(({ id }) => id);
