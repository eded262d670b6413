import { MIN_TOP_UP_CENTS } from '../top-up/amount.ts';
import { isLiveKey } from '../top-up/live-key.ts';
import type { SettingsReader } from './settings-reader.ts';

export interface CardConfig {
  readonly secretKey: string;
  /** Whether the key is a live one. */
  readonly livemode: boolean;
  /** Origin of a compatible server; the processor's own when undefined. */
  readonly apiBase: string | undefined;
  readonly checkoutOrigin: string;
  readonly topUpMaxCents: number;
  /** Purchases that one address may begin within TOP_UP_WINDOW_SECONDS. */
  readonly topUpRateLimitMax: number;
}

const CHECKOUT_ORIGIN = 'https://checkout.stripe.com';

/** Undefined while payment by card is off. */
export function readCard(reader: SettingsReader): CardConfig | undefined {
  const secretKey = reader.text('STRIPE_SECRET_KEY');
  const apiBase = reader.origin('STRIPE_API_BASE', 'http://127.0.0.1:12111');
  const checkoutOrigin = reader.origin('CHECKOUT_ORIGIN', CHECKOUT_ORIGIN) ?? CHECKOUT_ORIGIN;
  const topUpMaxCents = reader.integer('TOP_UP_MAX_CENTS', MIN_TOP_UP_CENTS, 99_999_999) ?? 100_000;
  const topUpRateLimitMax = reader.integer('TOP_UP_RATE_LIMIT_MAX', 1, 1_000_000_000) ?? 10;
  if (secretKey === undefined) {
    if (apiBase) {
      const fix = 'Set the secret key, or unset the base.';
      reader.fault('STRIPE_SECRET_KEY', 'is not set, but STRIPE_API_BASE is', fix);
    }
    return undefined;
  }
  if (!/^(sk|rk)_(test|live)_\S+$/.test(secretKey)) {
    const fix = 'Use a key that starts with sk_test_, sk_live_, rk_test_ or rk_live_.';
    reader.fault('STRIPE_SECRET_KEY', 'is no secret key', fix);
  }
  return { secretKey, livemode: isLiveKey(secretKey), apiBase, checkoutOrigin, topUpMaxCents, topUpRateLimitMax };
}
