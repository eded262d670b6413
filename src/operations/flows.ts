import type { IncomingHttpHeaders } from 'node:http';
import { failure } from '../http/errors.ts';

const X402_HEADERS = [
  'payment-signature',
  'x-x402-account',
  'x-x402-nonce',
  'x-x402-expiry',
  'x-x402-max-amount',
  'x-x402-signature',
];

/** Refuses a card request that carries another flow's headers (R36); undefined when it carries none. */
export function refuseX402Headers(headers: IncomingHttpHeaders) {
  const found = X402_HEADERS.find((name) => headers[name] !== undefined);
  return found === undefined
    ? undefined
    : failure('INVALID_REQUEST', `${found} belongs to another payment flow. Send x-credit-account only.`, {
        field: found,
        rule: 'one flow',
      });
}
