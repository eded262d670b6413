import { decodePaymentSignatureHeader } from '@x402/core/http';
import type { PaymentPayload } from '@x402/core/types';
import { AudioLostError, type PayingWallet, PriceChangedError, type ServiceError } from './errors.ts';
import type { PaymentReport } from './payment-report.ts';
import { boundedCharge, isRepeatable, mayNonceBeDeleted, type PendingPurchase } from './pending-purchase.ts';
import type { Outcome, PaidResponse } from './retry-until-resolved.ts';
import { faultOf, isDatabaseUnavailable, isTransient, serviceError } from './service-error.ts';

/** An error without a payment report says nothing about an earlier request with the same payment (R64). */
export function readRefusal(paid: PaidResponse, topUpUrl: string | null = null): Outcome<never> {
  const { pending } = paid;
  const error = serviceError(faultOf(paid.response, paid.errorBody), topUpUrl, walletOf(pending));
  const { retryAfterSeconds } = error;
  switch (paymentStateOf(error, paid)) {
    case 'not_charged': {
      const retry = retryKindOf(error, pending);
      return { outcome: 'refused', error, retryAfterSeconds, ...(retry && { retry }) };
    }
    case 'charged':
      return canStillComplete(error, pending)
        ? { outcome: 'unknown', cause: error, retryAfterSeconds }
        : audioLostOutcome(pending, error.payment?.amountMicroUsd ?? null);
    case 'unknown':
      return { outcome: 'unknown', cause: error, retryAfterSeconds };
  }
}

function walletOf({ headers, maxMicroUsd }: PendingPurchase): PayingWallet | null {
  const signed = headers['payment-signature'];
  if (signed === undefined) return null;
  const { accepted, payload }: Partial<PaymentPayload> = decodePaymentSignatureHeader(signed);
  const { from } = (payload?.authorization ?? {}) as { from?: string };
  if (!accepted || from === undefined) return null;
  return { address: from, network: accepted.network, amountMicroUsd: BigInt(maxMicroUsd) };
}

function paymentStateOf(error: ServiceError, { pending, isRetry }: PaidResponse): PaymentReport['state'] {
  const { payment } = error;
  if (payment) return payment.state === 'not_charged' && mayNonceBeDeleted(pending) ? 'unknown' : payment.state;
  return isRetry || mayBeAfterCharge(error) ? 'unknown' : 'not_charged';
}

/** A response without a report may come after the charge, or from a proxy that forwarded the request. */
const mayBeAfterCharge = (error: ServiceError): boolean =>
  error.status === 409 ||
  error.status === 500 ||
  isDatabaseUnavailable(error) ||
  (error.status > 500 && error.code === 'UNKNOWN');

const canStillComplete = ({ status, retryAfterSeconds }: ServiceError, pending: PendingPurchase): boolean =>
  pending.kind === 'deposit' ||
  (isRepeatable(pending) && (status >= 500 || status === 429 || status === 408 || retryAfterSeconds !== null));

function retryKindOf(error: ServiceError, pending: PendingPurchase) {
  const { flow } = pending;
  const { status, code, details } = error;
  const isOutdatedOffer = details?.error === 'accepted_is_no_offer' || (flow === 'prepaid' && status === 401);
  if (error instanceof PriceChangedError || isOutdatedOffer || code === 'UNKNOWN_TTS_MODEL') return 'terms';
  // The nonce is spent, and its charge was refunded.
  if (code === 'PREPAID_NONCE_REPLAYED') return 'new';
  if (!isTransient(error)) return undefined;
  // After a failed synthesis the nonce is spent (R33).
  const canRepeat = flow === 'prepaid' ? status < 500 : isRepeatable(pending);
  return canRepeat ? 'same' : 'new';
}

export function audioLostOutcome(pending: PendingPurchase, reportedMicroUsd: bigint | null) {
  const money = { chargedMicroUsd: boundedCharge(reportedMicroUsd, pending), maxMicroUsd: BigInt(pending.maxMicroUsd) };
  const error = new AudioLostError(
    `The audio of ${pending.identifier} has expired. Speak the text again as a new purchase. You were charged.`,
    money,
  );
  return { outcome: 'lost' as const, error, chargedMicroUsd: money.chargedMicroUsd };
}
