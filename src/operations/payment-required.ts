import type { JsonObject, PaymentRequiredError } from '../contract/types.ts';
import { serializedBody } from '../http/fixed-body.ts';
import { errorBody, failure } from '../http/structured-error.ts';
import type { Refused } from '../payments/refusal.ts';
import { type Challenge, encodeHeader, makeChallenge, type Resource } from '../x402/challenge.ts';
import { ChallengeTemplate } from '../x402/challenge-template.ts';
import type { Asset } from '../x402/network.ts';
import { makeOffer, type Offer } from '../x402/offer.ts';
import { currentPayee, type Payee, payablePayees } from '../x402/payees.ts';
import { BALANCE_TOO_SMALL } from './refusals.ts';

/** The body of the 402 with a challenge: it is in the error's details, and its members stand beside the error (R27). */
function bodyOf(message: string, challenge: Challenge): PaymentRequiredError {
  const { error: _, ...members } = challenge as unknown as JsonObject;
  return { ...errorBody('PAYMENT_REQUIRED', message, challenge as unknown as JsonObject), ...members };
}

/** The 402 that holds the challenge, in PAYMENT-REQUIRED and in its body (R27). */
export function paymentRequired(resource: Resource, offer: Offer, error: string, message: string) {
  const challenge = makeChallenge(resource, offer, error);
  return {
    status: 402 as const,
    headers: { 'cache-control': 'no-store' as const, 'payment-required': encodeHeader(challenge) },
    body: bodyOf(message, challenge),
  };
}

const UNPAID = {
  error: 'payment_required',
  message: 'Sign the challenge in PAYMENT-REQUIRED, and repeat the identical request with payment-signature.',
};

/** Of each resource, by the payee. */
const unpaid = new WeakMap<Resource, Map<string, ChallengeTemplate>>();

/** The answer to a request without payment, the most frequent one: it is written from a template. */
export function askForPayment(resource: Resource, offer: Offer) {
  const { header, body } = templateOf(resource, offer).write(offer.amount);
  return {
    status: 402 as const,
    headers: { 'cache-control': 'no-store' as const, 'payment-required': header },
    body: serializedBody(errorBody('PAYMENT_REQUIRED', UNPAID.message), body),
  };
}

/** @param offer of the one asset that there is; its amount does not count */
function templateOf(resource: Resource, offer: Offer): ChallengeTemplate {
  let ofResource = unpaid.get(resource);
  if (!ofResource) {
    ofResource = new Map();
    unpaid.set(resource, ofResource);
  }
  let template = ofResource.get(offer.payTo);
  if (!template) {
    template = new ChallengeTemplate(
      (amount) => makeChallenge(resource, { ...offer, amount }, UNPAID.error),
      (challenge) => bodyOf(UNPAID.message, challenge),
    );
    ofResource.set(offer.payTo, template);
  }
  return template;
}

/** The answer to a request that says nothing at all, where that is answered as the discovery example would be (R59). */
export const showExample = (resource: Resource, offer: Offer) =>
  paymentRequired(
    resource,
    offer,
    'text is missing: this is the challenge of the example',
    'text is missing. This is the challenge of the example; send a whole request to get the one to sign.',
  );

/** What may be paid for the amount: the first offer is what a challenge names, the others are still honoured (R45). */
export function offersFor(
  { asset, payees }: { readonly asset: Asset; readonly payees: readonly Payee[] },
  amountMicroUsd: bigint,
): [Offer, ...Offer[]] {
  const retiring = payablePayees(payees, new Date()).filter(({ status }) => status === 'retiring');
  const current = makeOffer(asset, amountMicroUsd, currentPayee(payees).address);
  return [current, ...retiring.map(({ address }) => makeOffer(asset, amountMicroUsd, address))];
}

/** The 402 of a balance that is too small for the price (R32). No challenge: flows are not mixed. */
export const depositRequired = (baseUrl: string, priceMicroUsd: bigint, refusal: Refused, message: string) => ({
  ...failure('PAYMENT_REQUIRED', refusal.reason === 'insufficient_funds' ? BALANCE_TOO_SMALL.prepaid : message, {
    reason: refusal.reason,
    priceMicroUsd: Number(priceMicroUsd),
    balanceMicroUsd: Number(refusal.balanceMicroUsd ?? 0n),
    depositEndpoint: `${baseUrl}/x402/deposit`,
  }),
  headers: { 'cache-control': 'no-store' as const },
});
