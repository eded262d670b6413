import { randomBytes } from 'node:crypto';
import { serve } from '../../support/listening.ts';
import { adding, type Cases, proxy } from './case.ts';
import { freePlaces, startService, writeKeys } from './scene.ts';

const OF_PUBLIC = ['identity', 'proxies', 'forged-addresses'];

/** What is wrong with BASE_URL, and the proxies behind it. */
export const FAULTS_OF_ADDRESS: Cases = {
  'an unreachable BASE_URL': {
    finds: ['fault', 'base-url', /did not answer: ECONNREFUSED/],
    skipped: OF_PUBLIC,
    make: () => ({ own: { BASE_URL: 'http://127.0.0.1:1' } }),
  },
  'an unset BASE_URL of a service that takes money': {
    finds: ['warning', 'base-url', /^BASE_URL is unset, so links and payments contain http:\/\/127\.0\.0\.1:/],
    make: () => ({ all: { BASE_URL: '' } }),
  },
  'a BASE_URL of another service': {
    finds: ['fault', 'base-url', /did not answer like Speechgate \(status 200\)/],
    skipped: OF_PUBLIC,
    make: async (_scene, t) => ({ own: { BASE_URL: await serve(t, (_, response) => response.end('Welcome')) } }),
  },
  'a BASE_URL of another Speechgate': {
    finds: ['fault', 'identity', /not signed by/],
    make: async ({ env, folder }, t) => {
      const SIGNING_KEYS_FILE = await writeKeys(folder, 'others.json');
      const { env: other } = await startService(t, { ...env, ...(await freePlaces()), SIGNING_KEYS_FILE });
      return { own: { BASE_URL: other.BASE_URL ?? '' } };
    },
  },
  'a BASE_URL of another Speechgate, detected by its quotes': {
    finds: ['fault', 'identity', /another QUOTE_SECRET, or the service made no quote/],
    skipped: ['signing-keys', 'signing-keys-file'],
    make: async ({ env }, t) => {
      const settings = { ...env, ...(await freePlaces()), SIGNING_KEYS_FILE: '' };
      const { env: other } = await startService(t, { ...settings, QUOTE_SECRET: randomBytes(32).toString('hex') });
      return { own: { BASE_URL: other.BASE_URL ?? '', SIGNING_KEYS_FILE: '' } };
    },
  },
  'a running process with another payee': {
    finds: ['fault', 'identity', /other values for these settings: X402_PAY_TO/],
    make: ({ env }) => ({ own: { X402_PAY_TO: `${env.X402_PAY_TO?.slice(0, -4).toLowerCase()}beef` } }),
  },
  'a proxy missing from TRUST_PROXY': {
    finds: ['fault', 'proxies', /an address that TRUST_PROXY does not name/],
    make: async (_scene, t, { PORT }) => ({ all: { BASE_URL: await proxy(t, PORT, adding) } }),
  },
  'a proxy that names clients by no address': {
    finds: ['warning', 'proxies', /X-Forwarded-For that is not an address/],
    make: async (_scene, t, { PORT }) => ({
      all: { TRUST_PROXY: '127.0.0.1', BASE_URL: await proxy(t, PORT, () => '_hidden') },
    }),
  },
  'a TRUST_PROXY without a proxy': {
    finds: [
      'warning',
      'proxies',
      /^TRUST_PROXY names a proxy, but test requests to BASE_URL did not reach this process through it/,
    ],
    make: () => ({ all: { TRUST_PROXY: '10.0.0.0/8' } }),
  },
  'a TRUST_PROXY that is too wide': {
    finds: ['fault', 'forged-addresses', /trusts too many addresses \(0\.0\.0\.0\/1\)/],
    make: async (_scene, t, { PORT }) => ({
      all: { TRUST_PROXY: '0.0.0.0/1,128.0.0.0/1', BASE_URL: await proxy(t, PORT, adding) },
    }),
  },
  'a proxy that forwards forged addresses': {
    finds: ['fault', 'forged-addresses', /trusts a forged address in X-Forwarded-For/],
    make: async (_scene, t, { PORT }) => ({
      all: { TRUST_PROXY: '127.0.0.1', BASE_URL: await proxy(t, PORT, (received, peer) => received ?? peer) },
    }),
  },
};
