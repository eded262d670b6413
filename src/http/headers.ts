/**
 * Request headers that pages of other origins may send, those of all flows included.
 */
const REQUEST_HEADERS = [
  'content-type',
  'accept',
  'range',
  'idempotency-key',
  'x-credit-account',
  'payment-signature',
  'x-x402-account',
  'x-x402-nonce',
  'x-x402-expiry',
  'x-x402-max-amount',
  'x-x402-signature',
  // The official x402 client sends it with a payment.
  'access-control-expose-headers',
];

/** Response headers that pages of other origins may read: all that the contract declares. */
const RESPONSE_HEADERS = [
  'x-trace-id',
  'x-credit-account',
  'x-credit-balance',
  'payment-required',
  'payment-response',
  'www-authenticate',
  'x-payment-identifier',
  'x-idempotent-replay',
  'x-x402-balance',
  'x-x402-charged',
  'retry-after',
  'x-ratelimit-limit',
  'x-ratelimit-policy',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
  'x-ratelimit-scope',
  'content-disposition',
  'content-range',
  'accept-ranges',
  'cache-control',
  'location',
  'allow',
];

export const API_CONTENT_SECURITY_POLICY = "default-src 'none'; frame-ancestors 'none'";

/**
 * Headers of every response, also of those that Node writes before Fastify sees a request: hardening and CORS for any
 * origin without credentials (specification, "Authentication" 7).
 */
export const EDGE_HEADERS: Readonly<Record<string, string>> = {
  'strict-transport-security': 'max-age=31536000; includeSubDomains',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'content-security-policy': API_CONTENT_SECURITY_POLICY,
  'cross-origin-resource-policy': 'cross-origin',
  'access-control-allow-origin': '*',
  'access-control-expose-headers': RESPONSE_HEADERS.join(', '),
};

/** Methods that some path serves. */
export const METHODS = ['GET', 'HEAD', 'POST', 'OPTIONS'] as const;

export const PREFLIGHT_HEADERS: Readonly<Record<string, string>> = {
  'access-control-allow-methods': METHODS.join(', '),
  'access-control-allow-headers': REQUEST_HEADERS.join(', '),
  'access-control-max-age': '86400',
};

/** For answers that were paid for, or that show a bearer id (R43, R52). */
export const PRIVATE = 'private, no-store';
