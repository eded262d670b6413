import type { PaymentEnvelope } from '../x402/envelope.ts';
import { MAX_TIMEOUT_SECONDS, type Offer } from '../x402/offer.ts';
import type { Address } from '../x402/payees.ts';

/** With less left of an authorization no payment is begun (R28). */
const MIN_SECONDS_LEFT = 15;
/** Beyond what a challenge asks for, an authorization may be valid this much longer (R28). */
const MAX_SECONDS_AHEAD = MAX_TIMEOUT_SECONDS + 60;

/**
 * Why an authorization is not the one that the offer asks for (R45), or is not valid for long enough or too long (R28);
 * undefined when nothing speaks against it.
 */
export function breachOf({ authorization }: PaymentEnvelope, offer: Offer): string | undefined {
  if (authorization.to !== (offer.payTo.toLowerCase() as Address)) return 'authorization_to_another_payee';
  if (authorization.value !== BigInt(offer.amount)) return 'authorization_of_another_amount';
  const now = BigInt(Math.floor(Date.now() / 1000));
  if (authorization.validAfter > now) return 'authorization_not_yet_valid';
  if (authorization.validBefore < now + BigInt(MIN_SECONDS_LEFT)) return 'authorization_expires_too_soon';
  return authorization.validBefore > now + BigInt(MAX_SECONDS_AHEAD) ? 'authorization_valid_for_too_long' : undefined;
}
