import type { Readable } from 'node:stream';
import type { Catalog } from '../../config/catalog.ts';
import type { GetX402SpeechResult } from '../../contract/operations.ts';
import { isUnavailable } from '../../db/database-errors.ts';
import type { DatabaseIdentity } from '../../ledger/database-identity.ts';
import { type BufferedSpeech, buffered } from '../../payments/delivery.ts';
import type { OfferedCharge } from '../../payments/direct/direct-payment.ts';
import { NOTHING_CHARGED, paymentAfter, type Receipt, type Refused, unknownPayment } from '../../payments/refusal.ts';
import {
  type NewRequest,
  type PaymentFlow,
  type PaymentHold,
  type Replayed,
  type RequestContext,
  speak,
} from '../../payments/speak.ts';
import { makeOffer, type Offer, offersFor, type PaymentTerms, type Resource } from '../../payments/x402/challenge.ts';
import {
  expiredQuote,
  invalidQuote,
  isExpired,
  placeQuotedOrder,
  type QuotedOrder,
  type QuotedRequest,
  type QuoteRefusal,
  type Quotes,
} from '../../payments/x402/quotes.ts';
import { type OrderRefusal, type OrderRequest, placeOrder, utteranceOf } from '../../speech/order.ts';
import type { SynthesisPermits } from '../../speech/synthesis-permits.ts';
import { type CHAIN_OFF, type OTHER_DOMAIN, PAYMENT_OFF, PROVIDER_OFF, QUOTES_OFF } from '../config-errors.ts';
import type { OperationContext } from '../operations.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { failure, isAnswer } from '../structured-error.ts';
import { type Pauses, pausedSpeech, refuseForeignDatabase, refuseForeignHeaders, refuseFormerHeader } from './flows.ts';
import { askForPayment, depositRequired, paymentRequired, showExample } from './payment-required.ts';
import { type PrepaidAudioLinks, refuseReplay } from './prepaid-audio.ts';
import { limitCredential, refusalAnswer, showReceipt, speechFailed, speechFailure } from './refusals.ts';

export type X402Flow = PaymentFlow<unknown, OfferedCharge> & {
  readonly name: 'direct' | 'prepaid';
};

/** Looks up an earlier request with the same payment. It works without any setting and while the flow is off (R45). */
export interface ReplayLookup {
  readonly name: X402Flow['name'];
  /** Undefined without a readable credential: then nothing was looked up. */
  find(headers: SpeechHeaders, request: RequestContext): Promise<Replayed | Refused | NewRequest | undefined>;
}

/** A way to pay; its headers are known even while it is off. */
interface OfferedFlow {
  readonly headers: readonly string[];
  readonly flow: X402Flow | undefined;
  readonly replays: ReplayLookup;
}

/** What a request for speech selects: by its text, or by a quote (R29). */
type OfferRequest = OrderRequest | (QuotedRequest & { readonly quoteToken: string });

interface OfferedOrder {
  readonly order: QuotedOrder;
  readonly offers: readonly [Offer, ...Offer[]];
  /** The refusal if the quote has expired. A repetition of a payment made in time is answered all the same. */
  readonly expired: ReturnType<typeof refuseOrder> | undefined;
}

interface X402SpeechParts extends BufferedSpeech {
  readonly permits: SynthesisPermits;
}

type SpeechHeaders = Readonly<Record<string, string | undefined>>;

export interface X402SpeechOptions {
  readonly catalog: Catalog;
  /** Undefined while x402 payment is off (R47). */
  readonly terms: PaymentTerms | undefined;
  readonly quotes: Quotes | undefined;
  readonly databaseIdentity: DatabaseIdentity;
  readonly flows: readonly OfferedFlow[];
  readonly foreignHeaders: readonly string[];
  /** Undefined without a speech provider. */
  readonly speech: X402SpeechParts | undefined;
  /** Why no payment can be settled (R58): then no challenge is made. */
  readonly refuseOnChain: () => Promise<typeof CHAIN_OFF | typeof OTHER_DOMAIN | undefined>;
  readonly resources: Readonly<Record<'GET' | 'POST', Resource>>;
  readonly links: PrepaidAudioLinks;
  readonly pauses: Pauses;
}

interface SpeechRequest {
  readonly asked: OfferRequest;
  readonly headers: SpeechHeaders;
}

/** A request that shows a payment of a flow that is open. */
interface X402Sale {
  readonly flow: X402Flow;
  readonly replays: ReplayLookup;
  readonly headers: SpeechHeaders;
  readonly offered: OfferedOrder;
  readonly speech: X402SpeechParts;
  readonly resource: Resource;
}

interface EarlierRequest extends Pick<X402Sale, 'replays' | 'headers'> {
  /** Whether its response takes a rate limit slot. */
  readonly isMetered?: boolean;
}

/** Speech paid in USDC, and the challenge for unpaid requests (R27). */
export class X402Speech {
  readonly #options: X402SpeechOptions;

  constructor(options: X402SpeechOptions) {
    this.#options = options;
  }

  async answer(
    method: 'GET' | 'POST',
    request: SpeechRequest,
    context: OperationContext,
  ): Promise<GetX402SpeechResult> {
    const { headers } = request;
    const resource = this.#options.resources[method];
    const checked = await this.#check(request, context);
    switch (checked.outcome) {
      case 'refused': {
        const { answer, replays } = checked;
        if (!replays) return answer;
        // Only an earlier response to a direct payment takes a slot here (R48).
        return this.#earlierAnswerOr(answer, { replays, headers, isMetered: replays.name === 'direct' }, context);
      }
      case 'paid':
        return this.#sell({ ...checked, headers, resource }, context);
      case 'unpaid':
        return this.#answerUnpaid(checked.offered, resource, context);
    }
  }

  async #answerUnpaid(offered: OfferedOrder, resource: Resource, context: OperationContext) {
    const former = refuseFormerHeader(context);
    if (former) return former;
    if (offered.expired) return offered.expired;
    const paused = pausedSpeech(this.#options.pauses, 'direct');
    if (paused) return speechFailure(paused);
    return (context.isBare ? showExample : askForPayment)(resource, offered.offers[0]);
  }

  /** Whether a request would be accepted beyond the edge's limit (R48). */
  async hasVerifiedCredential(request: SpeechRequest, context: OperationContext): Promise<boolean> {
    const checked = await this.#check(request, context);
    if (checked.outcome !== 'paid') return false;
    const { flow, offered } = checked;
    if (offered.expired || offered.order.text === undefined) return false;
    if (!flow.verify) return false;
    const shown = flow.credentialOf(request.headers);
    return shown.outcome === 'read' && flow.verify(shown.credential, context);
  }

  /**
   * Checks a request before its payment, in the order of R7. Reserves and charges nothing. A refused one has `replays`
   * if it shows a payment: an earlier request with the same payment may have been answered.
   */
  async #check({ asked }: SpeechRequest, context: OperationContext) {
    const { databaseIdentity, flows, foreignHeaders, speech, refuseOnChain } = this.#options;
    const offered = 'quoteToken' in asked ? await this.#offerQuoted(asked) : this.#offerAtRate(asked);
    const [chosen, other] = flows.filter(({ headers }) => headers.some((name) => context.hasHeader(name)));
    const mixed = refuseForeignHeaders(context, other ? [...foreignHeaders, ...other.headers] : foreignHeaders);
    // With headers of two flows (R36) there is no one payment to look up.
    if (mixed) return refusedBy(isAnswer(offered) ? offered : mixed);
    const { flow, replays } = chosen ?? {};
    if (isAnswer(offered)) return refusedBy(offered, replays);
    if (!speech) return refusedBy(PROVIDER_OFF, replays);
    const foreign = await refuseForeignDatabase(databaseIdentity, replays !== undefined);
    if (foreign) return refusedBy(foreign, replays);
    const off = flow?.name === 'prepaid' ? undefined : await refuseOnChain();
    if (off) return refusedBy(off, replays);
    // A flow that is off was refused above: without prepaid there is no offer, and without a chain no direct payment.
    return flow && replays
      ? { outcome: 'paid' as const, offered, speech, flow, replays }
      : { outcome: 'unpaid' as const, offered };
  }

  /** Prices what is asked for, and names who may be paid for it. */
  #offerAtRate(request: OrderRequest) {
    const { catalog, terms } = this.#options;
    const placed = placeOrder(catalog, request);
    if (placed.outcome === 'refused') return refuseOrder(placed);
    if (!terms) return PAYMENT_OFF;
    const { order } = placed;
    return { order, offers: offersFor(terms, order.priceMicroUsd), expired: undefined } satisfies OfferedOrder;
  }

  async #offerQuoted({ quoteToken, ...request }: Extract<OfferRequest, { quoteToken: string }>) {
    const { catalog, terms, quotes } = this.#options;
    if (!terms) return PAYMENT_OFF;
    if (!quotes) return QUOTES_OFF;
    const quote = await quotes.read(quoteToken);
    if (!quote) return refuseOrder(invalidQuote);
    const placed = placeQuotedOrder({ catalog, ...terms }, quote, request);
    if (placed.outcome === 'refused') return refuseOrder(placed);
    return {
      order: placed.order,
      offers: [makeOffer(terms.asset, quote.amountMicroUsd, quote.payTo)],
      expired: isExpired(quote, Date.now()) ? refuseOrder(expiredQuote) : undefined,
    } satisfies OfferedOrder;
  }

  /** Why nothing new is sold at present. */
  #refuseNew({ offered: { order, expired }, flow }: X402Sale) {
    if (order.text === undefined) {
      const message = 'text is missing. Send it together with the payment. You were not charged.';
      return failure('INVALID_REQUEST', message, { field: 'text', rule: 'required' });
    }
    const paused = pausedSpeech(this.#options.pauses, flow.name);
    if (paused) return speechFailure(paused);
    return expired;
  }

  /** Sells the speech and returns the whole audio. */
  async #sell(sale: X402Sale, context: OperationContext): Promise<GetX402SpeechResult> {
    const { flow, headers, speech, resource } = sale;
    const { order, offers } = sale.offered;
    // A flow whose credentials are verified for free takes a slot only for a failed one (R48).
    const limited = flow.verify ? undefined : await context.rateLimits.take('payment');
    if (limited) return limited;
    const shown = flow.credentialOf(headers);
    if (shown.outcome === 'refused') return this.#answerRefused(sale, shown, context);
    const refusal = this.#refuseNew(sale);
    if (refusal) return this.#earlierAnswerOr(refusal, sale, context);
    const { text = '', characters, ratePicoUsd, priceMicroUsd } = order;
    const charge: OfferedCharge = {
      utterance: utteranceOf(order, text),
      priceMicroUsd,
      usage: { model: order.model.id, characters, ratePicoUsd, traceId: context.traceId },
      request: context,
      offers,
      resource,
    };
    context.addLogFields({ flow: flow.name, characters });
    // Shown by errors only: one that is thrown from here on leaves the money in doubt (R64).
    context.payment = unknownPayment(priceMicroUsd);
    let held: PaymentHold | undefined;
    const onHeld = (hold: PaymentHold) => {
      held = hold;
      // A valid credential takes no slot at the edge either.
      if (flow.verify) context.rateLimits.uncountVerified();
    };
    try {
      const authorize = () => flow.authorize(shown.credential, charge);
      const sold = await speak({ authorize, charge, delivery: buffered(speech), permits: speech.permits, onHeld });
      switch (sold.outcome) {
        case 'ready':
          // The hold is captured after the response is delivered: this only follows it.
          context.followCharge(sold.captured, priceMicroUsd);
          speech.memory.countWhole(sold.body.length, context.response);
          return paid(sold.body, sold.body.length, sold.hold.receipt);
        case 'replayed':
          return replayed(sold, context);
        case 'refused':
          context.payment = paymentAfter(sold, priceMicroUsd);
          return await this.#answerRefused(sale, sold, context);
        case 'failed': {
          const answer = speechFailed(sold, context);
          if (!sold.hold) return await this.#earlierAnswerOr(answer, sale, context);
          context.payment = NOTHING_CHARGED;
          showReceipt(sold.hold.receipt, context);
          return answer;
        }
      }
    } catch (error) {
      if (held && !isUnavailable(error)) showReceipt(held.receipt, context);
      throw error;
    }
  }

  async #answerRefused(sale: X402Sale, refusal: Refused, context: OperationContext): Promise<GetX402SpeechResult> {
    const { links } = this.#options;
    const { offers, order } = sale.offered;
    if (refusal.isUncharged) context.addLogFields({ chargedMicroUsd: 0n });
    const limited = await limitCredential(refusal, context);
    if (limited) return limited;
    const replay = refusal.replay && (await refuseReplay(links, refusal.replay));
    showReceipt(refusal.receipt, context);
    if (replay) return replay;
    const explained = (await refusal.expiryFirst?.()) ?? refusal;
    const answer = refusalAnswer(explained, (known, message) =>
      known.balanceMicroUsd === undefined
        ? paymentRequired(sale.resource, offers[0], known.reason, message)
        : depositRequired(links.baseUrl, order.priceMicroUsd, known, message),
    );
    // The signature may have been valid when the identical request was paid.
    const mayBeRepetition = explained.code === 'UNAUTHORIZED' || explained.reason === 'expiry';
    return mayBeRepetition ? this.#earlierAnswerOr(answer, sale, context) : answer;
  }

  /** The response to the earlier request with this payment, or else the refusal. Settings must not hide it (R45). */
  async #earlierAnswerOr(
    refusal: GetX402SpeechResult,
    { replays, headers, isMetered }: EarlierRequest,
    context: OperationContext,
  ): Promise<GetX402SpeechResult> {
    const found = await replays.find(headers, context);
    if (!found) return refusal;
    if (found.outcome === 'new') {
      context.payment = found.payment;
      return refusal;
    }
    const limited = isMetered ? await context.rateLimits.take('payment') : undefined;
    if (limited) {
      if (found.outcome === 'replayed') found.audio.destroy();
      return limited;
    }
    context.addLogFields({ flow: replays.name });
    if (found.outcome === 'replayed') return replayed(found, context);
    context.payment = paymentAfter(found, 0n);
    await limitCredential(found, context);
    const replay = found.replay && (await refuseReplay(this.#options.links, found.replay));
    showReceipt(found.receipt, context);
    if (replay) return replay;
    return refusalAnswer(found, ({ reason }, message) => ({
      ...failure('PAYMENT_REQUIRED', message, { reason }),
      headers: { 'cache-control': 'no-store' as const },
    }));
  }
}

const refuseOrder = ({ code, message, details }: OrderRefusal | QuoteRefusal) => failure(code, message, details);

const refusedBy = <Answer>(answer: Answer, replays?: ReplayLookup) => ({
  outcome: 'refused' as const,
  answer,
  replays,
});

const paid = (body: Buffer | Readable, sizeBytes: number, receipt: Receipt | undefined) =>
  ({
    status: 200,
    headers: { 'cache-control': PRIVATE_CACHE, 'content-length': sizeBytes, ...receipt },
    body,
  }) as const;

function replayed({ audio, sizeBytes, receipt }: Replayed, context: OperationContext) {
  context.addLogFields({ chargedMicroUsd: 0n });
  return paid(audio, sizeBytes, receipt);
}
