import { randomUUID } from 'node:crypto';
import { canonicalize } from '../canonical-json.ts';
import type { CreditRequired } from '../contract/types.ts';
import { MICRO_USD_PER_CENT } from '../money.ts';
import { MIN_TOP_UP_CENTS } from '../top-up/amount.ts';
import type { CreditRefusal } from './card-credits.ts';

const CHALLENGE_LIFETIME_MS = 30 * 60 * 1000;

const MESSAGES: Record<CreditRefusal['reason'], string> = {
  no_account: 'Send the id of a credit account in x-credit-account. Buy credit at topUpUrl.',
  unknown_account: 'The account in x-credit-account does not exist. Buy credit at topUpUrl.',
  insufficient_funds: "The account's balance is too small for this request. Add credit at topUpUrl.",
};

/**
 * The 402 of the card flow: body, `WWW-Authenticate: Payment` challenge (HTTP Payment authentication scheme,
 * draft-httpauth-payment) and `PAYMENT-REQUIRED` header (R11, R46).
 */
export function creditChallenge(baseUrl: string, realm: string, priceMicroUsd: bigint, refusal: CreditRefusal) {
  const id = randomUUID();
  const amount = String(topUpCents(priceMicroUsd - refusal.balanceMicroUsd));
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
      message: MESSAGES[refusal.reason],
      details: {
        reason: refusal.reason,
        priceMicroUsd: Number(priceMicroUsd),
        balanceMicroUsd: Number(refusal.balanceMicroUsd),
        challengeId: id,
      },
    },
  };
  const request = canonicalize({ amount, currency: 'usd', topUpUrl: `${topUpUrl}&challenge=${id}` });
  const parameters = {
    id,
    realm,
    method: 'credits',
    intent: 'charge',
    request: Buffer.from(request).toString('base64url'),
    expires: new Date(Date.now() + CHALLENGE_LIFETIME_MS).toISOString(),
  };
  return {
    status: 402 as const,
    headers: {
      'cache-control': 'no-store',
      'payment-required': Buffer.from(JSON.stringify(body)).toString('base64'),
      'www-authenticate': `Payment ${Object.entries(parameters)
        .map(([name, value]) => `${name}="${value}"`)
        .join(', ')}`,
    },
    body,
  };
}

/** Whole cents that cover the shortfall, at least the smallest top-up (R11). */
export function topUpCents(shortfallMicroUsd: bigint): bigint {
  const cents = (shortfallMicroUsd + MICRO_USD_PER_CENT - 1n) / MICRO_USD_PER_CENT;
  return cents > MIN_TOP_UP_CENTS ? cents : BigInt(MIN_TOP_UP_CENTS);
}
