import cors from '@fastify/cors';
import helmet from '@fastify/helmet';
import Fastify from 'fastify';

/** Request headers that pages of other origins may send, those of all flows included. */
const REQUEST_HEADERS = [
  'content-type',
  'accept',
  'range',
  'if-range',
  'idempotency-key',
  'x-credit-account',
  'x-credit-max-amount',
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
  'x-credit-charged',
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

/** Methods that some path serves. */
export const METHODS = ['GET', 'HEAD', 'POST', 'OPTIONS'] as const;

const POLICY = 'content-security-policy';

type Headers = Readonly<Record<string, string>>;

/**
 * What the plugins for hardening and CORS set on a plain answer and on one to a preflight: any origin, no credentials
 * (specification, "Authentication" 7).
 *
 * They are asked once, for what they set never changes. As hooks they would cost half as much again as the rest of a
 * refusal, and answers that Node writes before Fastify sees a request would lack their headers.
 */
async function askPlugins(): Promise<{ plain: Headers; preflight: Headers }> {
  const probe = Fastify();
  await probe.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: { 'default-src': ["'none'"], 'frame-ancestors': ["'none'"] },
    },
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
    // Helmet writes no spaces between directives, the policies of pages have them.
    return { ...headers, [POLICY]: headers[POLICY].replaceAll(';', '; ') };
  };
  const answers = { plain: await ask('GET'), preflight: await ask('OPTIONS') };
  await probe.close();
  return answers;
}

const { plain, preflight } = await askPlugins();

/** Headers of every response, also of those that Node writes before Fastify sees a request. */
export const EDGE_HEADERS = plain;

/** Headers of every answer to OPTIONS. */
export const PREFLIGHT_HEADERS = preflight;

/** For answers that were paid for, or that show a bearer id (R43, R52). */
export const PRIVATE = 'private, no-store';
