import { decodePaymentResponseHeader } from '@x402/core/http';
import { AudioLostError } from './errors.ts';
import type { Answer, Reader } from './outcome.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { faultOf, isPassing, serviceError } from './service-error.ts';
import type { Speech } from './speech.ts';
import { audioStream, audioType, collect, wholeSpeech } from './speech-of.ts';

/** What the answer to a direct payment tells. The audio is read to its end: until then the payment may have to be repeated. */
export const readDirect: Reader<Speech> = async ({ pending, answer }) => {
  const { response, body } = answer;
  if (!response.ok) {
    return faultOf(response, answer.error).details?.reason === 'replay_window_over'
      ? lostAudio(pending)
      : refusedPayment(answer, pending.expiresAt);
  }
  const contentType = audioType(response);
  const bytes = await collect(audioStream(response, body));
  const chargedMicroUsd = BigInt(pending.maxMicroUsd);
  const speech = wholeSpeech(bytes, contentType, {
    flow: 'direct',
    chargedMicroUsd,
    balanceMicroUsd: null,
    identifier: pending.identifier,
    transaction: transactionOf(response),
    isReplay: response.headers.get('x-idempotent-replay') === 'true',
    traceId: response.headers.get('x-trace-id') ?? '',
  });
  return { outcome: 'bought', bought: speech, chargedMicroUsd };
};

/** It was settled, more than a day ago. */
function lostAudio({ identifier, maxMicroUsd }: PendingPurchase) {
  const money = { chargedMicroUsd: BigInt(maxMicroUsd), maxMicroUsd: BigInt(maxMicroUsd) };
  const error = new AudioLostError(`${identifier} was charged, and its audio is kept no longer.`, money);
  return { outcome: 'lost' as const, error, chargedMicroUsd: money.chargedMicroUsd };
}

/**
 * What a refusal tells of a payment, of speech or a deposit. Before its end a refused authorization may still be taken: by
 * another request, or since the chain settles what the facilitator has refused (R23).
 * @param expiresAt Unix seconds
 */
export function refusedPayment({ response, error }: Answer, expiresAt: number | null) {
  const fault = faultOf(response, error);
  const told = { error: serviceError(fault), retryAfterSeconds: fault.retryAfterSeconds };
  if (isPassing(fault)) return { outcome: 'refused' as const, again: 'identical' as const, ...told };
  switch (fault.status) {
    case 409:
      // Pending or unknown; a conflict can only be with a payment that was tampered with.
      return fault.code === 'PAYMENT_IDENTIFIER_CONFLICT'
        ? { outcome: 'refused' as const, ...told }
        : { outcome: 'unknown' as const, cause: told.error, retryAfterSeconds: fault.retryAfterSeconds };
    case 500:
      return { outcome: 'unknown' as const, cause: told.error, retryAfterSeconds: fault.retryAfterSeconds };
    default:
      return { outcome: 'refused' as const, isSure: fault.code !== 'UNKNOWN' && hasEnded(expiresAt), ...told };
  }
}

/** Whether nothing new can be bought with a signature any more, by the service's clock too. */
export const hasEnded = (expiresAt: number | null): boolean =>
  expiresAt !== null && Date.now() / 1000 > expiresAt + CLOCK_LEEWAY_SECONDS;

const CLOCK_LEEWAY_SECONDS = 30;

/** Of the settlement, as PAYMENT-RESPONSE names it. */
export function transactionOf(response: Response): string | null {
  const header = response.headers.get('payment-response');
  try {
    return header === null ? null : decodePaymentResponseHeader(header).transaction;
  } catch {
    return null;
  }
}
