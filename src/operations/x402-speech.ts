import type { Readable } from 'node:stream';
import type { GetX402SpeechResult } from '../contract/operations.ts';
import { isUnavailable } from '../db/database-errors.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { type BufferedSpeech, buffered } from '../payments/buffered-delivery.ts';
import type { OfferedCharge } from '../payments/direct-payment.ts';
import type { PaymentFlow, PaymentHold, Receipt, Replayed } from '../payments/payment-flow.ts';
import type { RefusalCode, Refused } from '../payments/refusal.ts';
import { speak } from '../payments/speak.ts';
import { utteranceOf } from '../speech/order.ts';
import type { Resource } from '../x402/challenge.ts';
import { limitCredential } from './credential-limit.ts';
import { closedSpeech, type Pauses } from './paused.ts';
import { depositRequired, paymentRequired } from './payment-required.ts';
import { answerRepeated, type PrepaidLinks } from './prepaid-audio.ts';
import { refusalAnswer } from './refusals.ts';
import { speechFailed, speechFailure } from './speech-failure.ts';
import { type OfferedOrder, quoteExpired, textMissing } from './x402-order.ts';

/** A flow that pays for speech at the x402 endpoints. */
export type X402Flow = PaymentFlow<unknown, RefusalCode, PaymentHold, OfferedCharge, Readable> & {
  readonly name: 'direct' | 'prepaid';
};

export interface X402Sale {
  readonly flow: X402Flow;
  /** As the contract declares them; they show the flow's credential. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly offered: OfferedOrder;
  readonly speech: BufferedSpeech;
  readonly resource: Resource;
  /** To audio whose answer did not arrive; with the base URL. */
  readonly links: PrepaidLinks;
  readonly pauses: Pauses;
}

/** Speaks what is paid by one of the flows under x402, and answers with the whole audio. */
export async function sellX402Speech(sale: X402Sale, context: OperationContext): Promise<GetX402SpeechResult> {
  const { flow, headers, speech, resource, pauses } = sale;
  const { order, offers, hasExpired } = sale.offered;
  const limited = flow.verifies ? undefined : await context.admission.take('payment');
  if (limited) return limited;
  const shown = flow.credentialOf(headers);
  if (shown.outcome === 'refused') return answerRefused(sale, shown, context);
  const { credential } = shown;
  const { text, characters, ratePicoUsd, priceMicroUsd } = order;
  if (text === undefined) return textMissing();

  const charge: OfferedCharge = {
    utterance: utteranceOf(order, text),
    priceMicroUsd,
    paidFor: { model: order.model.id, characters, ratePicoUsd, traceId: context.traceId },
    request: context,
    offers,
    resource,
  };
  context.note({ flow: flow.name, characters });
  const closed = closedSpeech(pauses, flow.name, context);
  if (hasExpired || closed) {
    const earlier = await flow.replay?.(credential, charge);
    if (!earlier) return closed ? speechFailure(closed, flow.untaken) : quoteExpired();
    return earlier.outcome === 'replayed' ? replayed(earlier, context) : answerRefused(sale, earlier, context);
  }
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
        return await answerRefused(sale, spoken, context);
      case 'failed':
        showReceipt(spoken.hold?.receipt, context);
        return speechFailed(flow, spoken, context);
    }
  } catch (error) {
    if (held && !isUnavailable(error)) showReceipt(held.receipt, context);
    throw error;
  }
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
  const explained = (await refusal.explain?.()) ?? refusal;
  if (explained.repeated) return answerRepeated(sale.links, explained.repeated);
  return refusalAnswer(explained, (known, message) =>
    known.balanceMicroUsd === undefined
      ? paymentRequired(sale.resource, offers[0], known.reason, message)
      : depositRequired(sale.links.baseUrl, order.priceMicroUsd, known, message),
  );
}

/** On every answer after authentication, whatever its status. */
export function showReceipt(receipt: Receipt | undefined, context: OperationContext): void {
  for (const [name, value] of Object.entries(receipt ?? {})) context.setHeader(name, String(value));
}
