import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Stripe from 'stripe';
import type { Test } from 'tap';
import { type RunningCheckout, startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { type Operations, operationsOn } from './checkout-operations.ts';

const STRIPE_KEY = 'sk_test_gateway';

export interface TestCheckout extends RunningCheckout, Operations {
  /** Settings of a gateway that sells through this checkout. */
  readonly env: Record<string, string>;
  /** The processor's API, as another program of its owner would use it. */
  readonly stripe: Stripe;
  /** Presses a button on the hosted page, and tells where it leads back to. @param email that the buyer gives */
  pay(checkoutUrl: string, email?: string, by?: 'accepted' | 'bank'): Promise<string>;
}

/** The sandbox's checkout with state of its own. */
export async function testCheckout(t: Test): Promise<TestCheckout> {
  const dataDir = await mkdtemp(join(tmpdir(), 'speechgate-checkout-'));
  const checkout = await startCheckout({ dataDir, secretKey: STRIPE_KEY });
  t.teardown(async () => {
    await checkout.close();
    await rm(dataDir, { recursive: true, force: true });
  });
  const { hostname, port } = new URL(checkout.apiBase);
  return {
    ...checkout,
    ...operationsOn(checkout),
    env: { STRIPE_SECRET_KEY: STRIPE_KEY, STRIPE_API_BASE: checkout.apiBase, CHECKOUT_ORIGIN: checkout.origin },
    stripe: new Stripe(STRIPE_KEY, { host: hostname, port, protocol: 'http', telemetry: false }),
    pay: async (checkoutUrl, email = '', by = 'accepted') => {
      const paid = await fetch(checkoutUrl, {
        method: 'POST',
        body: new URLSearchParams({ card: by, email }),
        redirect: 'manual',
      });
      return paid.headers.get('location') ?? '';
    },
  };
}

/** Whether the processor has the money of a refund or dispute of this status, as its documentation tells. */
export const isTakenAt = (status: string | null): boolean =>
  [
    'pending',
    'succeeded',
    'needs_response',
    'under_review',
    'appeal_needs_response',
    'appeal_under_review',
    'lost',
  ].includes(status ?? '');
