import type { RequestListener } from 'node:http';
import { json } from 'node:stream/consumers';
import { catalogWithSecond } from '../../support/catalog-file.ts';
import { testFacilitator } from '../../support/facilitator.ts';
import type { FaultyCheckout } from '../../support/faulty-checkout.ts';
import { serve } from '../../support/listening.ts';
import { openAiError, wav } from '../../support/stub-upstream.ts';
import { type Case, type Cases, changing, passOn } from './case.ts';
import { lacking } from './scene.ts';

/** A facilitator with another answer at /verify. */
const verifying =
  (answer: RequestListener): Case['make'] =>
  async ({ env }, t) => ({
    own: {
      X402_FACILITATOR_URL: await serve(t, (incoming, response) => {
        if (incoming.url === '/verify') answer(incoming, response);
        else passOn(env.X402_FACILITATOR_URL as string, incoming, response);
      }),
    },
  });

/** The processor lists one webhook endpoint, that of the service but for what is changed. */
export const sending =
  (changed: object = {}): Case['make'] =>
  (scene, t, places) => {
    const url = `${places.BASE_URL}/webhooks/stripe`;
    const data = [{ url, status: 'enabled', enabled_events: ['*'], ...changed }];
    const fault: FaultyCheckout['fault'] = (_method, path, response) => {
      if (!path.startsWith('/v1/webhook_endpoints')) return false;
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ object: 'list', data, has_more: false }));
      return true;
    };
    changing('checkout', { fault })(scene, t, places);
    return { all: { STRIPE_WEBHOOK_SECRET: 'whsec_of_the_doctor_test' } };
  };

/** What is wrong with those who speak, take cards, and settle. */
export const FAULTS_OF_PROVIDERS: Cases = {
  'an upstream that refuses the key': {
    finds: ['fault', 'upstream', /^The upstream failed for model tts-1(-hd)? and voice .* status 401/],
    make: changing('upstream', { mode: openAiError(401) }),
  },
  'an unreachable second upstream': {
    finds: [
      'fault',
      'upstream',
      /^The upstream failed for model second-model and voice second-voice: .* could not be reached, .+ \(ECONNREFUSED\)\.$/,
    ],
    make: async (_scene, t) => ({ own: { CATALOG_FILE: await catalogWithSecond(t, 'http://127.0.0.1:1/v1') } }),
  },
  'an upstream that returns WAV': {
    finds: ['fault', 'upstream', /returned WAV/],
    make: changing('upstream', { mode: wav() }),
  },
  'a wrong card processor key': {
    finds: ['fault', 'card-key', /refuses the key/],
    skipped: ['card-permissions'],
    make: () => ({ own: { STRIPE_SECRET_KEY: 'rk_test_of_somebody_else' } }),
  },
  'an unreachable card processor': {
    finds: ['fault', 'card-key', /no usable answer/],
    skipped: ['card-permissions'],
    make: () => ({ own: { STRIPE_API_BASE: 'http://127.0.0.1:1' } }),
  },
  'a live key on a database of test purchases': {
    finds: ['fault', 'card-mode', /is a live key, .* with a test key/],
    make: async ({ checkout }, t) => {
      const key = checkout.secretKey.replace('_test_', '_live_');
      const authorization = `Bearer ${checkout.secretKey}`;
      const apiBase = await serve(t, (incoming, response) =>
        passOn(checkout.apiBase, incoming, response, { authorization }),
      );
      return { own: { STRIPE_SECRET_KEY: key, STRIPE_API_BASE: apiBase } };
    },
  },
  'a restricted key that can’t read disputes': {
    finds: ['fault', 'card-permissions', /lacks permissions: Disputes: read\.$/],
    make: changing('checkout', { fault: lacking('GET /v1/disputes') }),
  },
  'a restricted key that can only read': {
    finds: ['fault', 'card-permissions', /lacks permissions: Checkout Sessions: write\.$/],
    make: changing('checkout', { fault: lacking('POST ') }),
  },
  'a card processor without our webhook endpoint': {
    finds: ['fault', 'card-webhook', /has no webhook endpoint http:\S+\/webhooks\/stripe\.$/],
    make: sending({ url: 'https://another.example/webhooks/stripe' }),
  },
  'a disabled webhook endpoint': {
    finds: ['fault', 'card-webhook', /has disabled the webhook endpoint/],
    make: sending({ status: 'disabled' }),
  },
  'a webhook endpoint without events of refunds': {
    finds: [
      'fault',
      'card-webhook',
      /does not get these events: checkout\.session\.async_payment_succeeded, refund\.created, /,
    ],
    make: sending({ enabled_events: ['checkout.session.completed'] }),
  },
  'a facilitator for another network': {
    finds: ['fault', 'facilitator', /does not support x402 version 2 with the scheme exact on eip155:8453/],
    make: async ({ chain }, t) => {
      const { url } = await testFacilitator(t, chain, { chainId: 84532, auth: 'a-token' });
      return { own: { X402_FACILITATOR_URL: url } };
    },
  },
  'a wrong facilitator token': {
    finds: ['fault', 'facilitator', /refuses our credential with status 401 at \/supported/],
    make: () => ({ own: { X402_FACILITATOR_AUTH: 'another-token' } }),
  },
  'a facilitator that refuses the token at /verify only': {
    finds: ['fault', 'facilitator', /refuses our credential with status 401 at \/verify/],
    make: async ({ env }, t) => {
      const url = await serve(t, (incoming, response) => {
        const headers = incoming.url === '/supported' ? { authorization: 'Bearer a-token' } : {};
        passOn(env.X402_FACILITATOR_URL as string, incoming, response, headers);
      });
      return { own: { X402_FACILITATOR_URL: url, X402_FACILITATOR_AUTH: 'another-token' } };
    },
  },
  'a facilitator that limits requests': {
    finds: ['fault', 'facilitator', /refuses requests with status 429 \(rate limit\) at \/verify/],
    make: verifying((_incoming, response) => response.writeHead(429).end('{"error":"too many requests"}')),
  },
  'a second facilitator that does not know the credential': {
    finds: ['fault', 'facilitator', /refuses our credential with status 401 at \/supported/],
    make: async ({ env }) => {
      const list = [{ url: env.X402_FACILITATOR_URL, auth: 'a-token' }, { url: env.X402_FACILITATOR_URL }];
      return { own: { X402_FACILITATOR_URL: '', X402_FACILITATOR_AUTH: '', X402_FACILITATORS: JSON.stringify(list) } };
    },
  },
  'a facilitator without /verify': {
    finds: ['fault', 'facilitator', /status 404 at \/verify/],
    make: verifying((_incoming, response) => response.writeHead(404).end()),
  },
  'a facilitator with a minimum above the lowest price': {
    finds: [
      'fault',
      'facilitator',
      /refuses a test payment of the lowest price, 0\.000018 USDC, with the reason invalid_payload, and/,
    ],
    make: verifying(async (incoming, response) => {
      const { paymentRequirements } = (await json(incoming)) as { paymentRequirements: { amount: string } };
      const invalidReason = Number(paymentRequirements.amount) < 1000 ? 'invalid_payload' : 'insufficient_funds';
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ isValid: false, invalidReason }));
    }),
  },
  'an unreachable facilitator': {
    finds: ['fault', 'facilitator', /did not answer: ECONNREFUSED/],
    make: () => ({ own: { X402_FACILITATOR_URL: 'http://127.0.0.1:1' } }),
  },
};
