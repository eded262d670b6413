import { randomUUID } from 'node:crypto';
import { MIN_TOP_UP_CENTS } from '../../config/card-settings.ts';
import type { CreditRequired, PaymentOutcome } from '../../contract/types.ts';
import { canonicalize } from '../../lib/canonical-json.ts';
import { MICRO_USD_PER_CENT } from '../../lib/money.ts';
import type { Refused } from '../../payments/refusal.ts';
import { encodeHeader } from '../../payments/x402/challenge.ts';
import { messageIn } from './refusals.ts';

const CHALLENGE_LIFETIME_MS = 30 * 60 * 1000;

/**
 * The 402 of the card flow: body, `WWW-Authenticate: Payment` challenge (draft-httpauth-payment), and a
 * `PAYMENT-REQUIRED` header that x402 clients can read, without an offer (R11, R46).
 */
export function creditChallenge(
  { baseUrl, priceMicroUsd, payment }: { baseUrl: string; priceMicroUsd: bigint; payment: PaymentOutcome | undefined },
  { reason, balanceMicroUsd = 0n, debtMicroUsd = 0n }: Refused,
  message: string,
) {
  const id = randomUUID();
  const amount = String(topUpCents(priceMicroUsd + debtMicroUsd - balanceMicroUsd));
  const topUpUrl = `${baseUrl}/top-up?amount=${amount}`;
  const body: CreditRequired = {
    type: `${baseUrl}/docs#payment-required`,
    amount,
    currency: 'usd',
    topUpUrl,
    creditAccount: {
      in: 'header',
      name: 'x-credit-account',
      maxLength: 128,
      description:
        'The bearer id of a credit account, shown after a top-up. Anyone who has the id can spend the credit.',
    },
    error: {
      code: 'PAYMENT_REQUIRED',
      message: messageIn('card', reason, message),
      details: {
        reason,
        priceMicroUsd: Number(priceMicroUsd),
        balanceMicroUsd: Number(balanceMicroUsd),
        ...(debtMicroUsd > 0n && { debtMicroUsd: Number(debtMicroUsd) }),
        challengeId: id,
        ...(payment && { payment }),
      },
    },
  };
  const request = canonicalize({ amount, currency: 'usd', topUpUrl: `${topUpUrl}&challenge=${id}` });
  const parameters = {
    id,
    realm: new URL(baseUrl).hostname,
    method: 'credits',
    intent: 'charge',
    request: Buffer.from(request).toString('base64url'),
    expires: new Date(Date.now() + CHALLENGE_LIFETIME_MS).toISOString(),
  };
  return {
    status: 402 as const,
    headers: {
      'cache-control': 'no-store',
      'payment-required': encodeHeader({ ...body, x402Version: 2, resource: { url: `${baseUrl}/tts` }, accepts: [] }),
      'www-authenticate': `Payment ${Object.entries(parameters)
        .map(([name, value]) => `${name}="${value}"`)
        .join(', ')}`,
    },
    type: 'application/json' as const,
    body,
  };
}

/** Whole cents that cover the shortfall with debts (R61), at least the minimum top-up (R11). */
function topUpCents(shortfallMicroUsd: bigint): bigint {
  const cents = (shortfallMicroUsd + MICRO_USD_PER_CENT - 1n) / MICRO_USD_PER_CENT;
  return cents > MIN_TOP_UP_CENTS ? cents : BigInt(MIN_TOP_UP_CENTS);
}
