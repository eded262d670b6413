import { AudioLostError, type Fault, PriceChangedError, type ServiceError } from './errors.ts';
import type { Answer, Outcome } from './outcome.ts';
import { type PaymentReport, paymentReport } from './payment-report.ts';
import { chargedWithin, isRepeatable, type PendingPurchase } from './pending-purchase.ts';
import { faultOf, isDatabaseUnavailable, isPassing, serviceError } from './service-error.ts';
import { CLOCK_LEEWAY_SECONDS } from './signed-rest.ts';

/** An error answer to a pending request. */
export interface AskedRefusal {
  readonly pending: PendingPurchase;
  readonly answer: Answer;
  /** Whether an earlier request with this payment may have arrived. */
  readonly isRepetition: boolean;
}

type Refusal = Extract<Outcome<never>, { outcome: 'refused' | 'lost' | 'unknown' }>;

/**
 * What an error answer says about the money, in every flow: only an answer that was decided after the payment was looked
 * up says anything about an earlier request with it (R64).
 * @param topUpUrl where card credit is bought
 */
export function readRefusal(asked: AskedRefusal, topUpUrl: string | null = null): Refusal {
  const { pending, answer } = asked;
  const fault = faultOf(answer.response, answer.error);
  const error = serviceError(fault, topUpUrl);
  const { retryAfterSeconds } = fault;
  switch (stateOf(fault, asked)) {
    case 'not_charged': {
      const again = againOf(error, fault, pending);
      return { outcome: 'refused', error, retryAfterSeconds, ...(again && { again }) };
    }
    case 'charged':
      return mayStillComplete(fault, pending)
        ? { outcome: 'unknown', cause: error, retryAfterSeconds }
        : lostAudio(pending, error.payment?.amountMicroUsd ?? null);
    case 'unknown':
      return { outcome: 'unknown', cause: error, retryAfterSeconds };
  }
}

function stateOf(fault: Fault, { pending, isRepetition }: AskedRefusal): PaymentReport['state'] {
  const report = paymentReport(fault.details);
  if (report) return report.state === 'not_charged' && isNonceForgotten(pending) ? 'unknown' : report.state;
  return isRepetition || mayFollowCharge(fault) ? 'unknown' : 'not_charged';
}

/** Whether an answer without a report may come from behind the look-up, or from a proxy that passed the request on. */
const mayFollowCharge = (fault: Fault): boolean =>
  fault.status === 409 ||
  fault.status === 500 ||
  isDatabaseUnavailable(fault) ||
  (fault.status > 500 && fault.code === 'UNKNOWN');

/** Whether bought speech, or a deposit, may still be had by repeating the request. */
const mayStillComplete = ({ status, retryAfterSeconds }: Fault, pending: PendingPurchase): boolean =>
  pending.kind === 'deposit' ||
  (isRepeatable(pending) && (status >= 500 || status === 429 || status === 408 || retryAfterSeconds !== null));

/** The identical request, a new purchase, or a new purchase at what the service asks for now; undefined: none of them. */
function againOf(error: ServiceError, fault: Fault, pending: PendingPurchase) {
  const { flow } = pending;
  const { status, code, details } = fault;
  const isOtherOffer = details?.error === 'accepted_is_no_offer' || (flow === 'prepaid' && status === 401);
  if (error instanceof PriceChangedError || isOtherOffer || code === 'UNKNOWN_TTS_MODEL') return 'terms';
  // The nonce is spent, and what it paid was given back.
  if (code === 'PREPAID_NONCE_REPLAYED') return 'anew';
  if (!isPassing(fault)) return undefined;
  // After a failed synthesis the nonce is spent (R33).
  const isIdentical = flow === 'prepaid' ? status < 500 : isRepeatable(pending);
  return isIdentical ? 'identical' : 'anew';
}

/** It was charged, and what was bought is gone. */
export function lostAudio(pending: PendingPurchase, toldMicroUsd: bigint | null) {
  const money = { chargedMicroUsd: chargedWithin(toldMicroUsd, pending), maxMicroUsd: BigInt(pending.maxMicroUsd) };
  const error = new AudioLostError(`${pending.identifier} was charged, and its audio is kept no longer.`, money);
  return { outcome: 'lost' as const, error, chargedMicroUsd: money.chargedMicroUsd };
}

/** Whether nothing new can be bought with a signature any more, by the own clock and by the service's. */
export const hasEnded = ({ expiresAt }: PendingPurchase, clockAheadMs = 0): boolean =>
  expiresAt !== null && Date.now() - Math.max(0, clockAheadMs) > (expiresAt + CLOCK_LEEWAY_SECONDS) * 1000;

/** Whoever has an authorization can settle it until it ends, whatever was answered (R23). */
export const mayBeTaken = (pending: PendingPurchase, clockAheadMs: number): boolean =>
  pending.flow === 'direct' && !hasEnded(pending, clockAheadMs);

/** Whether the service may have deleted the nonce, so that it can't know any more what the nonce paid for (R34). */
export const isNonceForgotten = ({ flow, expiresAt }: PendingPurchase): boolean =>
  flow === 'prepaid' && expiresAt !== null && Date.now() / 1000 > expiresAt + NONCE_KEPT_SECONDS;

/** A day from when the nonce was spent, which is before the signature's end. */
const NONCE_KEPT_SECONDS = 86_400 - 300;
