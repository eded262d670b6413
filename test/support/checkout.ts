import Stripe from 'stripe';
import type { Test } from 'tap';
import { type RunningCheckout, startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import {
  type DisputeRequest,
  openDispute,
  type RefundRequest,
  refund,
  settleRefund,
  updateDispute,
} from '../../src/sandbox/checkout/clawbacks.ts';
import type { Dispute, RefundStatus } from '../../src/sandbox/checkout/objects.ts';
import { endBankPayment } from '../../src/sandbox/checkout/sessions.ts';
import { sandboxFolder } from './sandbox-folder.ts';

export const STRIPE_KEY = 'sk_test_gateway';

/** What the processor's staff and the buyers' banks do. Each rejects with ApiError where the processor would refuse it. */
export const operationsOn = ({ store }: RunningCheckout) => ({
  refund: async (request: RefundRequest) => refund(store, request),
  settleRefund: async (id: string, status: RefundStatus) => settleRefund(store, id, status),
  openDispute: async (request: DisputeRequest) => openDispute(store, request),
  updateDispute: async (id: string, status: Dispute['status']) => updateDispute(store, id, status),
  endBankPayment: async (session: string, end: 'arrived' | 'refused') => endBankPayment(store, session, end),
});

export type Operations = ReturnType<typeof operationsOn>;

export type TestCheckout = Awaited<ReturnType<typeof testCheckout>>;

/** The processor's SDK on a checkout. */
export function stripeAt(origin: string, key = STRIPE_KEY): Stripe {
  const { hostname, port } = new URL(origin);
  return new Stripe(key, { host: hostname, port, protocol: 'http', telemetry: false });
}

/** The sandbox's checkout, with state of its own unless a folder is given. */
export async function testCheckout(t: Test, dataDir?: string) {
  const checkout = await startCheckout({ dataDir: dataDir ?? (await sandboxFolder(t)), secretKey: STRIPE_KEY });
  t.teardown(() => checkout.close());
  return {
    ...checkout,
    ...operationsOn(checkout),
    /** Settings of a gateway that sells through this checkout. */
    env: { STRIPE_SECRET_KEY: STRIPE_KEY, STRIPE_API_BASE: checkout.origin, CHECKOUT_ORIGIN: checkout.origin },
    /** The processor's API, as another program of its owner would use it. */
    stripe: stripeAt(checkout.origin),
    /** Presses a button on the hosted page, and tells where it leads back to. @param email that the buyer gives */
    pay: async (checkoutUrl: string, email = '', by: 'accepted' | 'bank' = 'accepted') => {
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
