import type { GetX402SpeechResult } from '../contract/operations.ts';
import type { OperationContext } from '../http/context.ts';
import { PRIVATE } from '../http/headers.ts';
import { addressKey } from '../limits/address-key.ts';
import { speakBuffered } from '../payments/buffered.ts';
import type { DirectPayment } from '../payments/direct.ts';
import { SpeechError } from '../speech/provider.ts';
import type { Resource } from '../x402/challenge.ts';
import { readPayment, refusePayment } from './payment-required.ts';
import { type Purchase, quoteExpired, textMissing, utteranceOf } from './purchase.ts';
import type { Speaking } from './speaking.ts';
import { NOT_SETTLED, speechFailure } from './speech-failure.ts';

export interface DirectParts {
  readonly direct: DirectPayment;
  readonly resource: Resource;
}

/** Speaks what one payment on the chain pays for. The payment-signature header is there. */
export async function speakDirect(
  { direct, resource }: DirectParts,
  { order, offers, hasExpired }: Purchase,
  speech: Speaking,
  context: OperationContext,
): Promise<GetX402SpeechResult> {
  const limited = await context.admission.take('payment');
  if (limited) return limited;
  const read = readPayment(context.headers['payment-signature']);
  if ('refusal' in read) return read.refusal;
  if (order.text === undefined) return textMissing();

  const { method, url, bytes, traceId } = context;
  const { timeoutMs } = speech;
  const address = addressKey(context.ip);
  const request = { method, url, bytes, envelope: read.envelope, offers, resource, timeoutMs, address, traceId };
  const utterance = utteranceOf(order, order.text);
  context.note({ flow: 'direct', characters: order.text.length });
  // What was paid before is answered however much is being spoken.
  const refusal = speech.admission.check(utterance);
  const outcome = hasExpired || refusal ? await direct.replay(request) : await direct.authorize(request);
  if (!outcome) return refusal && !hasExpired ? speechFailure(refusal, NOT_SETTLED) : quoteExpired();
  const paid = (receipt: string, isReplay: boolean) => ({
    'cache-control': PRIVATE,
    'payment-response': receipt,
    'x-payment-identifier': read.envelope.identifier,
    'x-idempotent-replay': isReplay,
  });
  if (outcome.outcome === 'refused') return refusePayment(outcome.refusal, resource, offers[0]);
  if (outcome.outcome === 'replay') {
    context.note({ chargedMicroUsd: 0n });
    return { status: 200, headers: paid(outcome.receipt, true), body: outcome.audio };
  }
  const { hold } = outcome;
  // Nothing is reserved while the payment is verified, lest payments that fail keep others out.
  const place = speech.admission.admitBuffered(utterance);
  if (place instanceof SpeechError) {
    await hold.void();
    context.note({ chargedMicroUsd: 0n });
    return speechFailure(place, NOT_SETTLED);
  }
  try {
    const { audio, receipt } = await speakBuffered(hold, place, utterance, hold.timeoutMs);
    if (receipt.outcome === 'settled') context.note({ chargedMicroUsd: order.priceMicroUsd });
    // After any other refusal a settle may have been sent, and only the chain can tell.
    else if (receipt.refusal.code === 'REPLAY_CACHE_UNAVAILABLE') context.note({ chargedMicroUsd: 0n });
    return receipt.outcome === 'settled'
      ? { status: 200, headers: paid(receipt.receipt, false), body: audio }
      : refusePayment(receipt.refusal, resource, offers[0]);
  } catch (error) {
    if (!(error instanceof SpeechError)) throw error;
    context.note({ chargedMicroUsd: 0n });
    context.log.warn({ err: error }, 'synthesis failed');
    return speechFailure(error, NOT_SETTLED);
  } finally {
    place.release();
  }
}
