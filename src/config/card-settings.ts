import type { SettingsReader } from './settings-reader.ts';

export interface CardConfig {
  readonly secretKey: string;
  readonly livemode: boolean;
  /** Signs the processor's events; without it they are not received. */
  readonly webhookSecret: string | undefined;
  readonly apiBase: string | undefined;
  readonly automaticTax: boolean;
  readonly checkoutOrigin: string;
  readonly topUpMaxCents: number;
  /** Purchases that an address may start within TOP_UP_WINDOW_SECONDS. */
  readonly topUpRateLimitMax: number;
}

/** Smaller amounts are raised to it (R14). */
export const MIN_TOP_UP_CENTS = 500;
const CHECKOUT_ORIGIN = 'https://checkout.stripe.com';

export const isLiveKey = (secretKey: string): boolean => /^(sk|rk)_live_/.test(secretKey);

export function readCard(reader: SettingsReader): CardConfig | undefined {
  const secretKey = reader.text('STRIPE_SECRET_KEY');
  const webhookSecret = readWebhookSecret(reader);
  const automaticTax = readAutomaticTax(reader);
  const apiBase = reader.origin('STRIPE_API_BASE', 'http://127.0.0.1:12111');
  const checkoutOrigin = reader.origin('CHECKOUT_ORIGIN', CHECKOUT_ORIGIN) ?? CHECKOUT_ORIGIN;
  const topUpMaxCents = reader.integer('TOP_UP_MAX_CENTS', MIN_TOP_UP_CENTS, 99_999_999) ?? 100_000;
  const topUpRateLimitMax = reader.integer('TOP_UP_RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 10;
  if (secretKey === undefined) {
    if (apiBase)
      reader.missing('STRIPE_SECRET_KEY', 'STRIPE_API_BASE', 'Set STRIPE_SECRET_KEY, or unset STRIPE_API_BASE.');
    if (webhookSecret)
      reader.missing(
        'STRIPE_SECRET_KEY',
        'STRIPE_WEBHOOK_SECRET',
        'Set STRIPE_SECRET_KEY too, or unset STRIPE_WEBHOOK_SECRET.',
      );
    return undefined;
  }
  if (!/^(sk|rk)_(test|live)_[\x21-\x7e]+$/.test(secretKey)) {
    const fix = 'Use a key that starts with sk_test_, sk_live_, rk_test_ or rk_live_.';
    reader.fault('STRIPE_SECRET_KEY', 'is not a secret key of Stripe', fix);
  }
  const livemode = isLiveKey(secretKey);
  const limits = { topUpMaxCents, topUpRateLimitMax };
  return { secretKey, livemode, webhookSecret, automaticTax, apiBase, checkoutOrigin, ...limits };
}

function readAutomaticTax(reader: SettingsReader): boolean {
  const text = reader.text('STRIPE_AUTOMATIC_TAX') ?? 'false';
  if (text !== 'true' && text !== 'false') {
    reader.fault('STRIPE_AUTOMATIC_TAX', 'is neither true nor false', 'Set it to true or false.');
  }
  return text === 'true';
}

function readWebhookSecret(reader: SettingsReader): string | undefined {
  const secret = reader.text('STRIPE_WEBHOOK_SECRET');
  if (secret === undefined || /^whsec_[\x21-\x7e]{16,}$/.test(secret)) return secret;
  const fix = "Copy the signing secret from the endpoint's page at Stripe. It starts with whsec_.";
  return reader.fault('STRIPE_WEBHOOK_SECRET', 'is not the signing secret of a webhook endpoint', fix);
}
