import { json } from 'node:stream/consumers';
import { catalogWithSecond } from '../../support/catalog-file.ts';
import { testFacilitator } from '../../support/facilitator.ts';
import { openAiError, wav } from '../../support/stub-upstream.ts';
import { type Cases, withChanged } from './case.ts';
import { passOn, serve } from './fronts.ts';
import { lacking } from './scene.ts';

/** What is wrong with those who speak, take cards, and settle. */
export const FAULTS_OF_PROVIDERS: Cases = {
  'an upstream that refuses the key': {
    check: 'upstream',
    state: 'fault',
    message: /^tts-1(-hd)? with .* status 401/,
    make: ({ upstream }, t) => withChanged(t, upstream, { mode: openAiError(401) }),
  },
  'an unreachable second upstream': {
    check: 'upstream',
    state: 'fault',
    message: /^second-model with second-voice failed: .* could not be reached/,
    make: async (_scene, t) => ({ own: { CATALOG_FILE: await catalogWithSecond(t, 'http://127.0.0.1:1/v1') } }),
  },
  'an upstream that returns WAV': {
    check: 'upstream',
    state: 'fault',
    message: /returned WAV/,
    make: ({ upstream }, t) => withChanged(t, upstream, { mode: wav() }),
  },
  'a wrong card processor key': {
    check: 'card-key',
    state: 'fault',
    message: /refuses the key/,
    skipped: ['card-permissions'],
    make: () => ({ own: { STRIPE_SECRET_KEY: 'rk_test_of_somebody_else' } }),
  },
  'an unreachable card processor': {
    check: 'card-key',
    state: 'fault',
    message: /no usable answer/,
    skipped: ['card-permissions'],
    make: () => ({ own: { STRIPE_API_BASE: 'http://127.0.0.1:1' } }),
  },
  'a live key on a database of test purchases': {
    check: 'card-mode',
    state: 'fault',
    message: /is a live key, .* with a test one/,
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
    check: 'card-permissions',
    state: 'fault',
    message: /lacks: Disputes: read\.$/,
    make: ({ checkout }, t) => withChanged(t, checkout, { fault: lacking('GET /v1/disputes') }),
  },
  'a restricted key that can only read': {
    check: 'card-permissions',
    state: 'fault',
    message: /lacks: Checkout Sessions: write\.$/,
    make: ({ checkout }, t) => withChanged(t, checkout, { fault: lacking('POST ') }),
  },
  'a facilitator for another network': {
    check: 'facilitator',
    state: 'fault',
    message: /does not support exact on eip155:8453/,
    make: async ({ chain }, t) => {
      const { url } = await testFacilitator(t, chain, { chainId: 84532, auth: 'a-token' });
      return { own: { X402_FACILITATOR_URL: url } };
    },
  },
  'a wrong facilitator token': {
    check: 'facilitator',
    state: 'fault',
    message: /refuses our credential with status 401 at \/supported/,
    make: () => ({ own: { X402_FACILITATOR_AUTH: 'another-token' } }),
  },
  'a facilitator that refuses the token at /verify only': {
    check: 'facilitator',
    state: 'fault',
    message: /refuses our credential with status 401 at \/verify/,
    make: async ({ env }, t) => {
      const url = await serve(t, (incoming, response) => {
        const isOpen = incoming.url === '/supported';
        passOn(
          env.X402_FACILITATOR_URL as string,
          incoming,
          response,
          isOpen ? { authorization: 'Bearer a-token' } : {},
        );
      });
      return { own: { X402_FACILITATOR_URL: url, X402_FACILITATOR_AUTH: 'another-token' } };
    },
  },
  'a facilitator that answers /verify with 403': {
    check: 'facilitator',
    state: 'fault',
    message: /refuses our credential with status 403 at \/verify/,
    make: async ({ env }, t) => {
      const url = await serve(t, (incoming, response) => {
        if (incoming.url === '/supported') passOn(env.X402_FACILITATOR_URL as string, incoming, response);
        else response.writeHead(403).end('{"error":"forbidden"}');
      });
      return { own: { X402_FACILITATOR_URL: url } };
    },
  },
  'a facilitator without /verify': {
    check: 'facilitator',
    state: 'fault',
    message: /status 404 at \/verify/,
    make: async ({ env }, t) => {
      const url = await serve(t, (incoming, response) => {
        if (incoming.url === '/supported') passOn(env.X402_FACILITATOR_URL as string, incoming, response);
        else response.writeHead(404).end();
      });
      return { own: { X402_FACILITATOR_URL: url } };
    },
  },
  'a facilitator with a minimum above the lowest price': {
    check: 'facilitator',
    state: 'fault',
    message: /refuses the lowest price of the catalog, 0\.000018 USDC, for another reason \(invalid_payload\)/,
    make: async ({ env }, t) => {
      const url = await serve(t, async (incoming, response) => {
        if (incoming.url !== '/verify') return passOn(env.X402_FACILITATOR_URL as string, incoming, response);
        const { paymentRequirements } = (await json(incoming)) as { paymentRequirements: { amount: string } };
        const invalidReason = Number(paymentRequirements.amount) < 1000 ? 'invalid_payload' : 'insufficient_funds';
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ isValid: false, invalidReason }));
      });
      return { own: { X402_FACILITATOR_URL: url } };
    },
  },
  'an unreachable facilitator': {
    check: 'facilitator',
    state: 'fault',
    message: /did not answer: ECONNREFUSED/,
    make: () => ({ own: { X402_FACILITATOR_URL: 'http://127.0.0.1:1' } }),
  },
};
