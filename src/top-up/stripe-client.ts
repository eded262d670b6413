import Stripe from 'stripe';
import { createStripeHttpClient } from './stripe-http.ts';

const TIMEOUT_MS = 10_000;

/**
 * The card processor's own SDK.
 * @param apiBase origin of a compatible server; the processor's own when undefined
 * @param retries how often a call that failed is repeated
 */
export function stripeClient(secretKey: string, apiBase: string | undefined, retries: number): Stripe {
  const base = apiBase ? new URL(apiBase) : undefined;
  return new Stripe(secretKey, {
    timeout: TIMEOUT_MS,
    maxNetworkRetries: retries,
    telemetry: false,
    httpClient: createStripeHttpClient(),
    ...(base && {
      host: base.hostname,
      port: base.port || (base.protocol === 'https:' ? '443' : '80'),
      protocol: base.protocol === 'https:' ? 'https' : 'http',
    }),
  });
}
