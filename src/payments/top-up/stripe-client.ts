import Stripe from 'stripe';
import { type OutsideCalls, outcomeOfStatus, UNMEASURED } from '../../observability/outside.ts';

const TIMEOUT_MS = 10_000;

export function stripeClient(
  secretKey: string,
  apiBase: string | undefined,
  retries: number,
  calls: OutsideCalls = UNMEASURED,
): Stripe {
  const base = apiBase ? new URL(apiBase) : undefined;
  return new Stripe(secretKey, {
    timeout: TIMEOUT_MS,
    maxNetworkRetries: retries,
    telemetry: false,
    httpClient: createStripeHttpClient(calls),
    ...(base && {
      host: base.hostname,
      port: base.port || (base.protocol === 'https:' ? '443' : '80'),
      protocol: base.protocol === 'https:' ? 'https' : 'http',
    }),
  });
}

/**
 * Passes only usable responses to Stripe's SDK: a JSON object that is a success or has an error member. The SDK takes
 * any object without an error for a success. JSON that is no object ends the process with an uncatchable exception.
 */
function createStripeHttpClient(calls: OutsideCalls): Stripe.HttpClient {
  const client = Stripe.createNodeHttpClient();
  return {
    getClientName: () => client.getClientName(),
    async makeRequest(...request) {
      const [, , path, method] = request;
      // As in /v1/refunds/re_1.
      const call = `${method} ${path.split(/[/?]/)[2]}`;
      const exchange = () => client.makeRequest(...request);
      const response = await calls.measure(call, exchange, (given) => outcomeOfStatus(given.getStatusCode()));
      const read = response.toJSON.bind(response);
      response.toJSON = async () => {
        const body: unknown = await read();
        if (isUsable(response.getStatusCode(), body)) return body;
        throw new TypeError('the card processor did not return a JSON object of its API');
      };
      return response;
    },
  };
}

function isUsable(status: number, body: unknown): boolean {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return false;
  if (!('error' in body) || !body.error) return status >= 200 && status < 300;
  return typeof body.error === 'object' || typeof body.error === 'string';
}
