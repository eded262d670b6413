import type { Readable } from 'node:stream';
import type { GetX402SpeechResult } from '../contract/operations.ts';
import { isUnavailable } from '../db/database-errors.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import { type BufferedSpeech, buffered } from '../payments/buffered-delivery.ts';
import type { OfferedCharge } from '../payments/direct-payment.ts';
import type { NewRequest, PaidRequest, PaymentFlow, PaymentHold, Receipt, Replayed } from '../payments/payment-flow.ts';
import { NOTHING_CHARGED, outcomeOf, unknownPayment } from '../payments/payment-outcome.ts';
import type { RefusalCode, Refused } from '../payments/refusal.ts';
import { speak } from '../payments/speak.ts';
import { utteranceOf } from '../speech/order.ts';
import type { Resource } from '../x402/challenge.ts';
import { limitCredential } from './credential-limit.ts';
import { depositRequired, paymentRequired } from './payment-required.ts';
import { answerRepeated, type PrepaidLinks } from './prepaid-audio.ts';
import { refusalAnswer } from './refusals.ts';
import { speechFailed } from './speech-failure.ts';
import type { OfferedOrder } from './x402-order.ts';

/** A flow that pays for speech at the x402 endpoints. */
export type X402Flow = PaymentFlow<unknown, RefusalCode, PaymentHold, OfferedCharge, Readable> & {
  readonly name: 'direct' | 'prepaid';
};

/** What an earlier request with the same payment came to. It depends on no setting, nor on its flow being on (R45). */
export interface PreviousRequests {
  readonly name: X402Flow['name'];
  /** Undefined where no credential can be read: nothing was looked up. */
  look(
    headers: SpeechHeaders,
    request: PaidRequest,
  ): Promise<Replayed<Readable, Receipt | undefined> | Refused | NewRequest | undefined>;
}

/** As the contract declares them; they show the flow's credential. */
export type SpeechHeaders = Readonly<Record<string, string | undefined>>;

export interface X402Sale {
  readonly flow: X402Flow;
  readonly previous: PreviousRequests;
  readonly headers: SpeechHeaders;
  readonly offered: OfferedOrder;
  readonly speech: BufferedSpeech;
  readonly resource: Resource;
  /** To audio whose answer did not arrive; with the base URL. */
  readonly links: PrepaidLinks;
  /** Why nothing new is sold now. */
  readonly refusal: GetX402SpeechResult | undefined;
}

/** Speaks what is paid by one of the flows under x402, and answers with the whole audio. */
export async function sellX402Speech(sale: X402Sale, context: OperationContext): Promise<GetX402SpeechResult> {
  const { flow, headers, speech, resource } = sale;
  const { order, offers } = sale.offered;
  const limited = flow.verifies ? undefined : await context.admission.take('payment');
  if (limited) return limited;
  const shown = flow.credentialOf(headers);
  if (shown.outcome === 'refused') return answerRefused(sale, shown, context);
  if (sale.refusal) return answerPrevious({ ...sale, isMetered: false }, sale.refusal, context);
  const { credential } = shown;
  const { text = '', characters, ratePicoUsd, priceMicroUsd } = order;
  const charge: OfferedCharge = {
    utterance: utteranceOf(order, text),
    priceMicroUsd,
    paidFor: { model: order.model.id, characters, ratePicoUsd, traceId: context.traceId },
    request: context,
    offers,
    resource,
  };
  context.note({ flow: flow.name, characters });
  context.payment = unknownPayment(priceMicroUsd);
  let held: PaymentHold | undefined;
  const onHeld = (hold: PaymentHold) => {
    held = hold;
    if (flow.verifies) context.admission.credentialVerified();
  };
  try {
    const spoken = await speak({ flow, credential, charge, delivery: buffered(speech), onHeld });
    switch (spoken.outcome) {
      case 'delivered':
        context.note({ chargedMicroUsd: priceMicroUsd });
        return paid(spoken.delivered, spoken.hold.receipt);
      case 'replayed':
        return replayed(spoken, context);
      case 'refused':
        context.payment = outcomeOf(spoken, priceMicroUsd);
        return await answerRefused(sale, spoken, context);
      case 'failed': {
        const answer = speechFailed(flow, spoken, context);
        if (!spoken.hold) return await answerPrevious({ ...sale, isMetered: false }, answer, context);
        context.payment = NOTHING_CHARGED;
        showReceipt(spoken.hold.receipt, context);
        return answer;
      }
    }
  } catch (error) {
    if (held && !isUnavailable(error)) showReceipt(held.receipt, context);
    throw error;
  }
}

/** What it takes to answer a repetition, whatever is sold now. */
export interface PreviousSale extends Pick<X402Sale, 'previous' | 'headers' | 'links'> {
  /** A repetition that is found takes a slot of its client's window. */
  readonly isMetered: boolean;
}

/**
 * The answer to a request for which nothing new is sold: that of the earlier request with the same payment, else the
 * refusal. Whatever today's settings speak against is told only when there is none (R45).
 */
export async function answerPrevious<Refusal>(
  sale: PreviousSale,
  refusal: Refusal,
  context: OperationContext,
): Promise<GetX402SpeechResult | Refusal> {
  const earlier = await sale.previous.look(sale.headers, context);
  if (!earlier) return refusal;
  if (earlier.outcome === 'new') {
    context.payment = earlier.payment;
    return refusal;
  }
  const limited = sale.isMetered ? await context.admission.take('payment') : undefined;
  if (limited) return limited;
  context.note({ flow: sale.previous.name });
  if (earlier.outcome === 'replayed') return replayed(earlier, context);
  context.payment = outcomeOf(earlier, 0n);
  await limitCredential(earlier, context);
  showReceipt(earlier.receipt, context);
  if (earlier.repeated) return answerRepeated(sale.links, earlier.repeated);
  return refusalAnswer(earlier, ({ reason }, message) => ({
    ...failure('PAYMENT_REQUIRED', message, { reason }),
    headers: { 'cache-control': 'no-store' as const },
  }));
}

const paid = (body: Buffer | Readable, receipt: Receipt | undefined) => ({
  status: 200 as const,
  headers: { 'cache-control': PRIVATE, ...receipt },
  body,
});

function replayed({ delivered, receipt }: Replayed<Readable, Receipt | undefined>, context: OperationContext) {
  context.note({ chargedMicroUsd: 0n });
  return paid(delivered, receipt);
}

/** A credential that fails costs its address a slot (R48). */
async function answerRefused(
  sale: X402Sale,
  refusal: Refused,
  context: OperationContext,
): Promise<GetX402SpeechResult> {
  const { offers, order } = sale.offered;
  if (refusal.isUncharged) context.note({ chargedMicroUsd: 0n });
  const limited = await limitCredential(refusal, context);
  if (limited) return limited;
  showReceipt(refusal.receipt, context);
  if (refusal.repeated) return answerRepeated(sale.links, refusal.repeated);
  const explained = (await refusal.explain?.()) ?? refusal;
  const answer = refusalAnswer(explained, (known, message) =>
    known.balanceMicroUsd === undefined
      ? paymentRequired(sale.resource, offers[0], known.reason, message)
      : depositRequired(sale.links.baseUrl, order.priceMicroUsd, known, message),
  );
  // A signature that does not count today may have counted when the identical request was paid.
  const isLate = explained.code === 'UNAUTHORIZED' || explained.reason === 'expiry';
  return isLate ? answerPrevious({ ...sale, isMetered: false }, answer, context) : answer;
}

/** On every answer after authentication, whatever its status. */
export function showReceipt(receipt: Receipt | undefined, context: OperationContext): void {
  for (const [name, value] of Object.entries(receipt ?? {})) context.setHeader(name, String(value));
}
