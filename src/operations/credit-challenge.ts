import { randomUUID } from 'node:crypto';
import type { CreditRequired, PaymentOutcome } from '../contract/types.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import { MICRO_USD_PER_CENT } from '../lib/money.ts';
import type { Refused } from '../payments/refusal.ts';
import { MIN_TOP_UP_CENTS } from '../top-up/amount.ts';
import { encodeHeader } from '../x402/challenge.ts';
import { BALANCE_TOO_SMALL } from './refusals.ts';

const CHALLENGE_LIFETIME_MS = 30 * 60 * 1000;

interface ChallengedRequest {
  readonly baseUrl: string;
  readonly priceMicroUsd: bigint;
  /** What happened to the money. */
  readonly payment: PaymentOutcome | undefined;
}

/**
 * The 402 of the card flow: body, `WWW-Authenticate: Payment` challenge (HTTP Payment authentication scheme,
 * draft-httpauth-payment) and `PAYMENT-REQUIRED` header, which clients of x402 can read and find no offer in (R11, R46).
 * @param message in words, why it is asked for
 */
export function creditChallenge(
  { baseUrl, priceMicroUsd, payment }: ChallengedRequest,
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
      description: 'The bearer id of a credit account, shown once a top-up is complete. Whoever knows it can spend it.',
    },
    error: {
      code: 'PAYMENT_REQUIRED',
      message: reason === 'insufficient_funds' ? BALANCE_TOO_SMALL.card : message,
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
    body,
  };
}

/** Whole cents that cover the shortfall, debts among it (R61), at least the smallest top-up (R11). */
function topUpCents(shortfallMicroUsd: bigint): bigint {
  const cents = (shortfallMicroUsd + MICRO_USD_PER_CENT - 1n) / MICRO_USD_PER_CENT;
  return cents > MIN_TOP_UP_CENTS ? cents : BigInt(MIN_TOP_UP_CENTS);
}
