import { NO_ORIGIN, NO_WHOLE_NUMBER, type Settings } from './setting.ts';

const PROCESSOR = { STRIPE_SECRET_KEY: 'sk_test_1' };

/** Of payment by card. */
export const CARD_SETTINGS: Settings = {
  STRIPE_SECRET_KEY: {
    read: (config) => config.card?.secretKey,
    absent: undefined,
    accepted: { sk_test_1: 'sk_test_1', sk_live_1: 'sk_live_1', rk_test_1: 'rk_test_1', rk_live_1: 'rk_live_1' },
    refused: ['pk_test_1', 'sk_test_', 'sk_test_1 2', 'sk_test_é'],
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
  TOP_UP_MAX_CENTS: {
    read: (config) => config.card?.topUpMaxCents,
    absent: 100_000,
    accepted: { '500': 500, '99999999': 99_999_999 },
    refused: ['499', '100000000', ...NO_WHOLE_NUMBER],
    beside: PROCESSOR,
  },
  TOP_UP_RATE_LIMIT_MAX: {
    read: (config) => config.card?.topUpRateLimitMax,
    absent: 10,
    accepted: { '1': 1, '1000000000': 1_000_000_000 },
    refused: ['0', '1000000001', ...NO_WHOLE_NUMBER],
    beside: PROCESSOR,
  },
};
