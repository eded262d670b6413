import type { PaymentEnvelope } from '../x402/envelope.ts';
import { MAX_TIMEOUT_SECONDS, type Offer } from '../x402/offer.ts';
import type { Address } from '../x402/payees.ts';
import { type Refused, refused } from './refusal.ts';

/** With less left of an authorization no payment is begun (R28). */
const MIN_SECONDS_LEFT = 15;
/** Beyond what a challenge asks for, an authorization may be valid this much longer (R28). */
const MAX_SECONDS_AHEAD = MAX_TIMEOUT_SECONDS + 60;

/**
 * Why an authorization is not the one that the offer asks for (R45), or is not valid for long enough or too long (R28);
 * undefined when nothing speaks against it.
 */
export function breachOf({ authorization }: PaymentEnvelope, offer: Offer): Refused<'PAYMENT_REQUIRED'> | undefined {
  const { to, value, validAfter, validBefore } = authorization;
  if (to !== (offer.payTo.toLowerCase() as Address)) {
    return refused('PAYMENT_REQUIRED', 'authorization_to_another_payee');
  }
  if (value !== BigInt(offer.amount)) return refused('PAYMENT_REQUIRED', 'authorization_of_another_amount');
  const now = BigInt(Math.floor(Date.now() / 1000));
  if (validAfter > now) {
    const breach = "validAfter is ahead of this service's clock";
    return wrongTime('authorization_not_yet_valid', 'validAfter', breach, now);
  }
  if (validBefore < now + BigInt(MIN_SECONDS_LEFT)) {
    const breach = `validBefore is less than ${MIN_SECONDS_LEFT} seconds ahead of this service's clock`;
    return wrongTime('authorization_expires_too_soon', 'validBefore', breach, now);
  }
  if (validBefore > now + BigInt(MAX_SECONDS_AHEAD)) {
    const breach = `validBefore is more than ${MAX_SECONDS_AHEAD} seconds ahead of this service's clock`;
    return wrongTime('authorization_valid_for_too_long', 'validBefore', breach, now);
  }
  return undefined;
}

function wrongTime(reason: string, name: string, breach: string, now: bigint): Refused<'PAYMENT_REQUIRED'> {
  const time = new Date(Number(now) * 1000).toISOString();
  const message =
    `authorization.${breach} (${time}). Your clock is wrong, or what was signed is: sign the challenge again, with a ` +
    `validAfter that has passed and a validBefore ${MAX_TIMEOUT_SECONDS} seconds ahead. You were not charged.`;
  return refused('PAYMENT_REQUIRED', reason, {
    fault: { field: `payload.authorization.${name}`, rule: 'lifetime', message },
  });
}
