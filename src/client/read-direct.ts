import { decodePaymentResponseHeader } from '@x402/core/http';
import type { Reader } from './outcome.ts';
import { readRefusal } from './read-refusal.ts';
import { traceIdOf } from './service-error.ts';
import type { Speech } from './speech.ts';
import { audioStream, audioType, collect, wholeSpeech } from './speech-of.ts';

/** What the answer to a direct payment tells. The audio is read to its end: until then the payment may have to be repeated. */
export const readDirect: Reader<Speech> = async (asked) => {
  const { pending, answer } = asked;
  const { response, body } = answer;
  if (!response.ok) return readRefusal(asked);
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
    traceId: traceIdOf(response),
  });
  return { outcome: 'bought', bought: speech, chargedMicroUsd };
};

/** Of the settlement, as PAYMENT-RESPONSE names it. */
export function transactionOf(response: Response): string | null {
  const header = response.headers.get('payment-response');
  try {
    const transaction: unknown = header === null ? null : decodePaymentResponseHeader(header).transaction;
    return typeof transaction === 'string' && /^0x[0-9a-f]{64}$/i.test(transaction) ? transaction : null;
  } catch {
    return null;
  }
}
