import type { JsonObject } from '../contract/types.ts';
import { errorBody, failure } from '../http/errors.ts';
import type { PaymentRefusal, PaymentRefusalCode } from '../payments/refusal.ts';
import { encodeHeader, makeChallenge, type Resource } from '../x402/challenge.ts';
import { decodeEnvelope, InvalidEnvelope, type PaymentEnvelope } from '../x402/envelope.ts';
import type { Asset } from '../x402/network.ts';
import { makeOffer, type Offer } from '../x402/offer.ts';
import { currentPayee, type Payee, payablePayees } from '../x402/payees.ts';
import { ONE_AT_A_TIME_RETRY_SECONDS } from './busy.ts';

/** The 402 that holds the challenge, in PAYMENT-REQUIRED and in its details (R27). */
export function paymentRequired(resource: Resource, offer: Offer, error: string, message: string) {
  const challenge = makeChallenge(resource, offer, error);
  return {
    status: 402 as const,
    headers: { 'cache-control': 'no-store' as const, 'payment-required': encodeHeader(challenge) },
    body: errorBody('PAYMENT_REQUIRED', message, challenge as unknown as JsonObject),
  };
}

/** The answer to a request without payment. */
export const askForPayment = (resource: Resource, offer: Offer) =>
  paymentRequired(
    resource,
    offer,
    'payment_required',
    'Sign the challenge in PAYMENT-REQUIRED, and repeat the identical request with payment-signature.',
  );

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
  const offerTo = ({ address }: Payee) => makeOffer(asset, amountMicroUsd, address);
  return [offerTo(currentPayee(payees)), ...retiring.map(offerTo)];
}

/** Reads the payment-signature header, or refuses it. */
export function readPayment(header: unknown) {
  try {
    return { envelope: decodeEnvelope(String(header)) } satisfies { envelope: PaymentEnvelope };
  } catch (error) {
    if (!(error instanceof InvalidEnvelope)) throw error;
    const { field, rule } = error;
    const message = `payment-signature can't be read. ${error.message}`;
    return { refusal: failure('INVALID_PAYMENT_PAYLOAD', message, { field, rule }) };
  }
}

/** A payment's refusal as the caller sees it. @param transaction that is waited for, where there is one */
export function refusePayment<Code extends PaymentRefusalCode>(
  { code, reason, message }: PaymentRefusal<Code>,
  resource: Resource,
  offer: Offer,
  transaction?: string,
) {
  switch (code) {
    case 'PAYMENT_REQUIRED':
      return paymentRequired(resource, offer, reason, message);
    case 'RATE_LIMITED':
      return {
        ...failure('RATE_LIMITED', message, { reason }),
        headers: { 'retry-after': ONE_AT_A_TIME_RETRY_SECONDS },
      };
    default:
      return failure(code as Exclude<Code, 'PAYMENT_REQUIRED' | 'RATE_LIMITED'>, message, {
        reason,
        ...(transaction !== undefined && { transaction }),
      });
  }
}
