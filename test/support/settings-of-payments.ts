import { generateKeyPairSync } from 'node:crypto';
import type { FacilitatorCredential } from '../../src/config/x402-settings.ts';
import { NO_ORIGIN, SECRET, type Settings, wholeNumber } from './setting.ts';

const PROCESSOR = { STRIPE_SECRET_KEY: 'sk_test_1' };

/** Of payment by card. */
export const CARD_SETTINGS: Settings = {
  STRIPE_SECRET_KEY: {
    read: (config) => config.card?.secretKey,
    absent: undefined,
    accepted: { sk_test_1: 'sk_test_1', sk_live_1: 'sk_live_1', rk_test_1: 'rk_test_1', rk_live_1: 'rk_live_1' },
    refused: ['pk_test_1', 'sk_test_', 'sk_test_1 2', 'sk_test_é'],
  },
  STRIPE_WEBHOOK_SECRET: {
    read: (config) => config.card?.webhookSecret,
    absent: undefined,
    accepted: { whsec_1234567890123456: 'whsec_1234567890123456' },
    refused: ['sk_test_1', 'whsec_', 'whsec_123456789012345 6'],
    beside: PROCESSOR,
  },
  STRIPE_AUTOMATIC_TAX: {
    read: (config) => config.card?.automaticTax,
    absent: false,
    accepted: { true: true, false: false },
    refused: ['yes', 'TRUE', '1'],
    beside: PROCESSOR,
  },
  STRIPE_API_BASE: {
    read: (config) => config.card?.apiBase,
    absent: undefined,
    accepted: { 'http://127.0.0.1:12111': 'http://127.0.0.1:12111' },
    refused: NO_ORIGIN,
    beside: PROCESSOR,
  },
  CHECKOUT_ORIGIN: {
    read: (config) => config.card?.checkoutOrigin,
    absent: 'https://checkout.stripe.com',
    accepted: { 'https://checkout.example': 'https://checkout.example' },
    refused: NO_ORIGIN,
    beside: PROCESSOR,
  },
  TOP_UP_MAX_CENTS: wholeNumber((config) => config.card?.topUpMaxCents, [500, 99_999_999], 100_000, PROCESSOR),
  TOP_UP_RATE_LIMIT_MAX: wholeNumber((config) => config.card?.topUpRateLimitMax, [1, 1_000_000_000], 10, PROCESSOR),
};

const USDC = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const FACILITATOR = { X402_FACILITATOR_URL: 'https://facilitator.example' };
const X402 = { X402_PAY_TO: USDC, ...FACILITATOR };

const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
const ED25519_KEY = Buffer.concat([jwk.d, jwk.x].map((part) => Buffer.from(part ?? '', 'base64url'))).toString(
  'base64',
);
const EC_KEY = String(
  generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'pem', type: 'sec1' }),
);

const idOf = (credential: FacilitatorCredential | undefined) =>
  typeof credential === 'object' && 'id' in credential ? credential.id : credential;
const keyTypeOf = (credential: FacilitatorCredential | undefined) =>
  typeof credential === 'object' && 'id' in credential ? credential.privateKey.asymmetricKeyType : credential;

/** Of payment under x402, quotes and signed metadata. */
export const X402_SETTINGS: Settings = {
  X402_PAY_TO: {
    read: (config) => config.x402?.payees[0]?.address,
    absent: undefined,
    accepted: { [USDC]: USDC, [`${USDC.toLowerCase()}:current:2026-01-01`]: USDC },
    refused: ['alice.eth', `${USDC}:former`, `${USDC},${USDC}`, `${USDC}:next`],
    beside: FACILITATOR,
    half: true,
  },
  X402_FACILITATOR_URL: {
    read: (config) => config.x402?.facilitators[0]?.url,
    absent: undefined,
    accepted: { 'https://facilitator.example/x402': 'https://facilitator.example/x402' },
    refused: ['facilitator.example', 'ftp://facilitator.example', 'https://u:%zz@facilitator.example'],
    beside: { X402_PAY_TO: USDC },
    half: true,
  },
  X402_FACILITATOR_AUTH: {
    read: (config) => config.x402?.facilitators[0]?.credential,
    absent: undefined,
    accepted: { token: 'token' },
    refused: ['two\nlines', 'tokén'],
    beside: X402,
  },
  X402_FACILITATOR_KEY_ID: {
    read: (config) => idOf(config.x402?.facilitators[0]?.credential),
    absent: undefined,
    accepted: { 'the id': 'the id' },
    refused: [],
    beside: { ...X402, X402_FACILITATOR_KEY_SECRET: ED25519_KEY },
    half: true,
  },
  X402_FACILITATOR_KEY_SECRET: {
    read: (config) => keyTypeOf(config.x402?.facilitators[0]?.credential),
    absent: undefined,
    accepted: { [ED25519_KEY]: 'ed25519', [EC_KEY]: 'ec', [EC_KEY.replaceAll('\n', '\\n')]: 'ec' },
    refused: ['no key', ED25519_KEY.slice(4), EC_KEY.slice(0, 100)],
    beside: { ...X402, X402_FACILITATOR_KEY_ID: 'the id' },
    half: true,
  },
  X402_FACILITATORS: {
    read: (config) =>
      config.x402?.facilitators.map(({ url, credential }) => [url, idOf(credential), keyTypeOf(credential)]),
    absent: undefined,
    accepted: {
      '[{"url":"https://a.example/x402","auth":"token"},{"url":"https://b.example"}]': [
        ['https://a.example/x402', 'token', 'token'],
        ['https://b.example/', undefined, undefined],
      ],
      [JSON.stringify([{ url: 'https://a.example/', key: { id: 'the id', secret: ED25519_KEY } }])]: [
        ['https://a.example/', 'the id', 'ed25519'],
      ],
      '[{"url":"https://a.example/","headers":{"x-api-key":"key"}}]': [
        ['https://a.example/', { headers: { 'x-api-key': 'key' } }, { headers: { 'x-api-key': 'key' } }],
      ],
    },
    refused: [
      'https://a.example',
      '[]',
      '[{"url":"a.example"}]',
      '[{"url":"https://a.example","token":"token"}]',
      '[{"url":"https://a.example","auth":"two\\nlines"}]',
      '[{"url":"https://a.example","headers":{"x key":"key"}}]',
      '[{"url":"https://a.example","auth":"token","headers":{"x-api-key":"key"}}]',
      '[{"url":"https://a.example","key":{"id":"the id","secret":"no key"}}]',
    ],
    beside: { X402_PAY_TO: USDC },
    half: true,
  },
  X402_RPC_URL: {
    read: (config) => config.x402?.rpcUrls,
    absent: undefined,
    accepted: {
      'https://node.example/key': ['https://node.example/key'],
      'https://a.example/, http://b.example/,https://a.example': ['https://a.example/', 'http://b.example/'],
    },
    refused: ['node.example', 'ipc:/node', 'https://%zz@node.example', 'https://node.example/,ipc:/node'],
    beside: X402,
  },
  X402_NETWORK: {
    read: (config) => config.x402?.asset.chainId,
    absent: 8453,
    accepted: { 'eip155:84532': 84_532 },
    refused: ['base', 'eip155:', 'eip155:0', 'solana:1'],
    beside: X402,
  },
  X402_ASSET: {
    read: (config) => config.x402?.asset.address,
    absent: USDC,
    accepted: { [USDC.toLowerCase()]: USDC },
    refused: ['USDC', '0x1234'],
    beside: X402,
  },
  X402_ASSET_NAME: {
    read: (config) => config.x402?.asset.name,
    absent: 'USD Coin',
    accepted: { USDC: 'USDC' },
    refused: [],
    beside: X402,
  },
  X402_ASSET_VERSION: {
    read: (config) => config.x402?.asset.version,
    absent: '2',
    accepted: { '1': '1' },
    refused: [],
    beside: X402,
  },
  X402_PROBE_ANSWER: {
    read: (config) => config.x402?.probeAnswer,
    absent: 400,
    accepted: { '400': 400, '402': 402 },
    refused: ['200', '0402', 'true'],
    beside: X402,
  },
  QUOTE_SECRET: {
    read: (config) => config.quotes?.secrets,
    absent: undefined,
    accepted: { [SECRET]: [SECRET], [`${SECRET}, ${'t'.repeat(40)}`]: [SECRET, 't'.repeat(40)] },
    refused: ['short', `${SECRET},short`],
  },
  QUOTE_TTL_SECONDS: wholeNumber((config) => config.quotes?.ttlSeconds, [1, 86_400], 300, { QUOTE_SECRET: SECRET }),
  SIGNING_KEYS_FILE: {
    read: (config) => config.signingKeys,
    absent: undefined,
    accepted: {},
    refused: ['no-such-file.json', 'package.json', 'README.md'],
  },
};
