import type { JsonObject, PaymentRequiredError } from '../../contract/types.ts';
import type { Refused } from '../../payments/refusal.ts';
import {
  type Challenge,
  ChallengeTemplate,
  encodeHeader,
  makeChallenge,
  type Offer,
  type Resource,
} from '../../payments/x402/challenge.ts';
import { serializedBody } from '../reply.ts';
import { errorBody, failure } from '../structured-error.ts';
import { messageIn } from './refusals.ts';

function bodyOf(message: string, challenge: Challenge): PaymentRequiredError {
  const { error: _, ...members } = challenge as unknown as JsonObject;
  return { ...errorBody('PAYMENT_REQUIRED', message, challenge as unknown as JsonObject), ...members };
}

export function paymentRequired(resource: Resource, offer: Offer, error: string, message: string) {
  const challenge = makeChallenge(resource, offer, error);
  return {
    status: 402 as const,
    headers: { 'cache-control': 'no-store' as const, 'payment-required': encodeHeader(challenge) },
    type: 'application/json' as const,
    body: bodyOf(message, challenge),
  };
}

const UNPAID = {
  error: 'payment_required',
  message:
    'This request must be paid. Sign the challenge in PAYMENT-REQUIRED, and repeat the identical request with payment-signature.',
};

const templates = new WeakMap<Resource, Map<string, ChallengeTemplate>>();

/** The 402 of an unpaid request, with the challenge in `PAYMENT-REQUIRED` (R27). */
export function askForPayment(resource: Resource, offer: Offer) {
  const { header, body } = templateOf(resource, offer).write(offer.amount);
  return {
    status: 402 as const,
    headers: { 'cache-control': 'no-store' as const, 'payment-required': header },
    type: 'application/json' as const,
    body: serializedBody(errorBody('PAYMENT_REQUIRED', UNPAID.message), body),
  };
}

/** A template takes 1.5 µs per 402, JSON.stringify 27 µs, of about 120 µs (Node 24). @param offer without its amount */
function templateOf(resource: Resource, offer: Offer): ChallengeTemplate {
  const ofResource = templates.get(resource) ?? new Map<string, ChallengeTemplate>();
  templates.set(resource, ofResource);
  const known = ofResource.get(offer.payTo);
  if (known) return known;
  const template = new ChallengeTemplate(
    (amount) => makeChallenge(resource, { ...offer, amount }, UNPAID.error),
    (challenge) => bodyOf(UNPAID.message, challenge),
  );
  ofResource.set(offer.payTo, template);
  return template;
}

/** The 402 for a bare probe: the challenge of the discovery example (R59). */
export const showExample = (resource: Resource, offer: Offer) =>
  paymentRequired(
    resource,
    offer,
    'text is missing, so this challenge is only an example',
    'text is missing, so this challenge is only an example. To get one that you can pay, send the whole request.',
  );

/** The 402 of the prepaid flow (R32). It has no challenge, because flows are not mixed. */
export const depositRequired = (baseUrl: string, priceMicroUsd: bigint, refusal: Refused, message: string) => ({
  ...failure('PAYMENT_REQUIRED', messageIn('prepaid', refusal.reason, message), {
    reason: refusal.reason,
    priceMicroUsd: Number(priceMicroUsd),
    balanceMicroUsd: Number(refusal.balanceMicroUsd ?? 0n),
    depositEndpoint: `${baseUrl}/x402/deposit`,
  }),
  headers: { 'cache-control': 'no-store' as const },
});
