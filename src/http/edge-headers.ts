import cors from '@fastify/cors';
import helmet from '@fastify/helmet';
import Fastify from 'fastify';

/** The official x402 client sends access-control-expose-headers with a payment. */
const REQUEST_HEADERS =
  'content-type, accept, range, if-range, if-none-match, idempotency-key, x-credit-account, x-credit-max-amount, payment-signature, ' +
  'x-x402-account, x-x402-nonce, x-x402-expiry, x-x402-max-amount, x-x402-signature, access-control-expose-headers';

/** All response headers of the contract, so that pages of other origins can read them. */
const RESPONSE_HEADERS =
  'x-trace-id, x-credit-account, x-credit-balance, x-credit-charged, payment-required, payment-response, ' +
  'www-authenticate, x-payment-identifier, x-idempotent-replay, x-x402-balance, x-x402-charged, retry-after, ' +
  'x-ratelimit-limit, x-ratelimit-policy, x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-scope, ' +
  'content-disposition, content-range, accept-ranges, cache-control, etag, location, allow, date';

export const METHODS = ['GET', 'HEAD', 'POST', 'OPTIONS'] as const;

const POLICY = 'content-security-policy';

type Headers = Readonly<Record<string, string>>;

/**
 * The headers of every response (R76) and of preflights: CORS for any origin without credentials, and the hardening
 * headers, such as helmet's default `x-content-type-options: nosniff`. No response sets a cookie. These headers never
 * change, so helmet and cors are asked once: as hooks they would cost half as much as the rest of a refusal, and responses
 * to malformed HTTP would lack them.
 */
export async function readEdgeHeaders(): Promise<{ readonly plain: Headers; readonly preflight: Headers }> {
  const probe = Fastify();
  await probe.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: { 'default-src': ["'none'"], 'frame-ancestors': ["'none'"] },
    },
    // <audio> of other sites plays what they bought (R43).
    crossOriginResourcePolicy: { policy: 'cross-origin' },
    frameguard: { action: 'deny' },
    hsts: { maxAge: 31_536_000, includeSubDomains: true },
    referrerPolicy: { policy: 'no-referrer' },
    crossOriginOpenerPolicy: false,
    originAgentCluster: false,
    xDnsPrefetchControl: false,
    xDownloadOptions: false,
    xPermittedCrossDomainPolicies: false,
    xXssProtection: false,
  });
  await probe.register(cors, {
    origin: '*',
    exposedHeaders: RESPONSE_HEADERS,
    allowedHeaders: REQUEST_HEADERS,
    methods: [...METHODS],
    maxAge: 86_400,
    preflightContinue: true,
    strictPreflight: false,
  });
  probe.route({ method: ['GET', 'OPTIONS'], url: '/', handler: async (_request, reply) => reply.getHeaders() });
  const ask = async (method: 'GET' | 'OPTIONS'): Promise<Headers> => {
    const headers = (await probe.inject({ method, url: '/' })).json();
    return { ...headers, [POLICY]: headers[POLICY].replaceAll(';', '; ') };
  };
  const answers = { plain: await ask('GET'), preflight: await ask('OPTIONS') };
  await probe.close();
  return answers;
}
