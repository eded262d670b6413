import type { GetX402SpeechResult, X402Operations } from '../contract/operations.ts';
import type { OperationContext } from '../http/context.ts';
import { errorBody, failure } from '../http/errors.ts';
import { PRIVATE } from '../http/headers.ts';
import type { RollingWindow } from '../limits/rolling-window.ts';
import { formatUsd } from '../money.ts';
import { speakBuffered } from '../payments/buffered.ts';
import type { Deposits } from '../payments/deposit.ts';
import type { DirectPayment } from '../payments/direct.ts';
import type { PrepaidBalances } from '../payments/prepaid.ts';
import type { Catalog } from '../speech/catalog.ts';
import { type OrderRefusal, type OrderRequest, placeOrder, select, textTooLong } from '../speech/order.ts';
import { priceMicroUsd } from '../speech/price.ts';
import { SpeechError, type SpeechProvider } from '../speech/provider.ts';
import { type Resource, speechResource } from '../x402/challenge.ts';
import type { ServiceMetadata } from '../x402/metadata.ts';
import type { Asset } from '../x402/network.ts';
import { makeOffer, type Offer } from '../x402/offer.ts';
import { currentPayee, type Payee } from '../x402/payees.ts';
import {
  invalidQuote,
  placeQuotedOrder,
  type QuotedOrder,
  type QuotedRequest,
  type QuoteRefusal,
} from '../x402/quoted-order.ts';
import { isExpired, type Quote, type Quotes } from '../x402/quotes.ts';
import { makeDeposit } from './deposit.ts';
import { refuseForeignHeaders, x402FlowOf } from './flows.ts';
import { askForPayment, offersFor, readPayment, refusePayment } from './payment-required.ts';
import { readPrepaidAccount, speakPrepaid } from './prepaid.ts';
import { addressBucket, meter } from './rate-limit.ts';

export interface X402Options {
  readonly baseUrl: string;
  readonly serviceName: string;
  readonly catalog: Catalog;
  /** Undefined while no speech provider is configured. */
  readonly speech: { readonly provider: SpeechProvider; readonly timeoutMs: number } | undefined;
  readonly limits: RollingWindow;
  /** Who is paid in what. Undefined while payment under x402 is off (R47). */
  readonly terms: { readonly asset: Asset; readonly payees: readonly Payee[] } | undefined;
  /** Undefined while payment under x402 is off, or the chain can't be asked (R58). */
  readonly direct: DirectPayment | undefined;
  /** Undefined while payment under x402 is off, or the chain can't be asked (R58). */
  readonly deposits: Deposits | undefined;
  /** Undefined while payment under x402 is off. */
  readonly prepaid: PrepaidBalances | undefined;
  readonly quotes: Quotes | undefined;
  readonly metadata: ServiceMetadata | undefined;
}

/** What a request wants spoken, and what is to be paid for it. */
interface Purchase {
  readonly order: QuotedOrder;
  /** The first one is what a challenge names. */
  readonly offers: readonly [Offer, ...Offer[]];
  readonly hasExpired: boolean;
}

const OFF = 'Payment in USDC is not set up here.';
const EXPIRED = {
  message: 'The quote has expired. Get a new one from POST /x402/tts/quote.',
  details: { field: 'quoteToken', rule: 'expiresAt' },
};

/** Text to speech paid in USDC under x402, quotes, and the signed metadata. */
export function x402Operations(options: X402Options): X402Operations {
  const { baseUrl, serviceName, catalog, speech, limits, terms, direct, deposits, prepaid, quotes, metadata } = options;
  const resources = {
    GET: speechResource(baseUrl, serviceName, 'GET'),
    POST: speechResource(baseUrl, serviceName, 'POST'),
  };

  async function speak(
    method: 'GET' | 'POST',
    request: OrderRequest | (QuotedRequest & { quoteToken: string }),
    context: OperationContext,
  ): Promise<GetX402SpeechResult> {
    const purchase = 'quoteToken' in request ? await quotedPurchase(request) : plainPurchase(request);
    if ('status' in purchase) return purchase;
    const flow = x402FlowOf(context.headers);
    if ('refusal' in flow) return flow.refusal;
    if (!speech) {
      const details = { setting: 'SPEECH_BASE_URL' };
      return failure('TTS_PROVIDER_NOT_CONFIGURED', 'No speech provider is set up here.', details);
    }
    switch (flow.flow) {
      case 'prepaid':
        return payFromBalance(purchase, speech, context);
      case 'direct':
        return payDirectly(resources[method], purchase, context);
      case 'none':
        if (!direct) return chainMissing();
        if (purchase.hasExpired) return failure('QUOTE_EXPIRED', EXPIRED.message, EXPIRED.details);
        return askForPayment(resources[method], purchase.offers[0]);
    }
  }

  function payFromBalance(
    { order, hasExpired }: Purchase,
    spoken: NonNullable<X402Options['speech']>,
    context: OperationContext,
  ): Promise<GetX402SpeechResult> | GetX402SpeechResult {
    if (!prepaid) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
    if (hasExpired) return failure('QUOTE_EXPIRED', EXPIRED.message, EXPIRED.details);
    if (order.text === undefined) return textMissing();
    const utterance = utteranceOf(order, order.text);
    const purchase = { utterance, priceMicroUsd: order.priceMicroUsd };
    return speakPrepaid({ balances: prepaid, limits, baseUrl }, purchase, spoken, context);
  }

  async function payDirectly(
    resource: Resource,
    { order, offers, hasExpired }: Purchase,
    context: OperationContext,
  ): Promise<GetX402SpeechResult> {
    if (!direct || !speech) return chainMissing();
    const limited = await meter(context, limits.take(addressBucket(context)));
    if (limited) return limited;
    const read = readPayment(context.headers['payment-signature']);
    if ('refusal' in read) return read.refusal;
    const { method, url, bytes } = context;
    const request = { method, url, bytes, envelope: read.envelope, offers, resource, timeoutMs: speech.timeoutMs };
    const { text } = order;
    if (text === undefined) return textMissing();

    const outcome = hasExpired ? await direct.replay(request) : await direct.authorize(request);
    const { identifier } = read.envelope;
    const paid = (receipt: string, isReplay: boolean) => ({
      'cache-control': PRIVATE,
      'payment-response': receipt,
      'x-payment-identifier': identifier,
      'x-idempotent-replay': isReplay,
    });
    if (!outcome) return failure('QUOTE_EXPIRED', EXPIRED.message, EXPIRED.details);
    if (outcome.outcome === 'refused') return refusePayment(outcome.refusal, resource, offers[0]);
    if (outcome.outcome === 'replay') {
      return { status: 200, headers: paid(outcome.receipt, true), body: outcome.audio };
    }
    const { hold } = outcome;
    const utterance = utteranceOf(order, text);
    try {
      const { audio, receipt } = await speakBuffered(hold, speech.provider, utterance, hold.timeoutMs);
      return receipt.outcome === 'settled'
        ? { status: 200, headers: paid(receipt.receipt, false), body: audio }
        : refusePayment(receipt.refusal, resource, offers[0]);
    } catch (error) {
      if (!(error instanceof SpeechError)) throw error;
      context.log.warn({ err: error }, 'synthesis failed');
      return speechFailure(error);
    }
  }

  function plainPurchase(request: OrderRequest) {
    const placed = placeOrder(catalog, request);
    if ('refusal' in placed) return refuseOrder(placed.refusal);
    if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
    const { order } = placed;
    return { order, offers: offersFor(terms, order.priceMicroUsd), hasExpired: false } satisfies Purchase;
  }

  async function quotedPurchase({ quoteToken, ...request }: QuotedRequest & { quoteToken: string }) {
    if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
    if (!quotes) return quotesMissing();
    const quote = await quotes.read(quoteToken);
    const placed = quote ? placeQuotedOrder({ catalog, ...terms }, quote, request) : { refusal: invalidQuote };
    if ('refusal' in placed) return refuseOrder(placed.refusal);
    const { amountMicroUsd, payTo } = quote as Quote;
    const purchase: Purchase = {
      order: placed.order,
      offers: [makeOffer(terms.asset, amountMicroUsd, payTo)],
      hasExpired: isExpired(quote as Quote, Date.now()),
    };
    return purchase;
  }

  return {
    createX402Speech: ({ body }, context) => speak('POST', body, context),

    getX402Speech: ({ query }, context) => speak('GET', query, context),

    getPrepaidAccount: async ({ params }, context) =>
      prepaid
        ? readPrepaidAccount({ balances: prepaid, limits, baseUrl }, params.address, context)
        : failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' }),

    createDeposit: async ({ body }, context) => {
      if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
      if (!deposits) return chainMissing();
      return makeDeposit({ baseUrl, serviceName, terms, deposits }, body.amountMicroUsd, context);
    },

    createQuote: async ({ body }, context) => {
      const foreign = refuseForeignHeaders(context.headers, ['x-credit-account']);
      if (foreign) return foreign;
      const selected = select(catalog, body);
      if ('refusal' in selected) {
        const { code, message, details } = selected.refusal;
        return { status: 400, body: errorBody(code, message, details) };
      }
      const { model, voice, speed } = selected.selection;
      if (body.textLength > model.maxInputCharacters) {
        const { code, message, details } = textTooLong('textLength', body.textLength, model);
        return { status: 400, body: errorBody(code, message, details) };
      }
      if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
      if (!quotes) return quotesMissing();
      const { quote, token } = await quotes.issue({
        textLength: body.textLength,
        textSha256: body.textSha256.toLowerCase(),
        model: model.id,
        voice: voice.id,
        speed,
        amountMicroUsd: priceMicroUsd(body.textLength, model.ratePicoUsd),
        network: terms.asset.network,
        payTo: currentPayee(terms.payees).address,
      });
      const { issuedAt, expiresAt, amountMicroUsd, ...rest } = quote;
      return {
        status: 200,
        body: {
          ...rest,
          quoteToken: token,
          amountMicroUsd,
          amountUsd: formatUsd(amountMicroUsd),
          issuedAt: new Date(issuedAt * 1000).toISOString(),
          expiresAt: new Date(expiresAt * 1000).toISOString(),
          paymentEndpoint: '/x402/tts',
        },
      };
    },

    getServiceMetadata: async () => {
      if (!metadata) {
        const details = { setting: terms ? 'SIGNING_KEYS_FILE' : 'X402_PAY_TO' };
        return failure('CONFIG_ERROR', 'Signed metadata is not set up here.', details);
      }
      const { document, maxAgeSeconds } = await metadata.read();
      return { status: 200, headers: { 'cache-control': `public, max-age=${maxAgeSeconds}` }, body: document };
    },
  };
}

const utteranceOf = ({ model, voice, speed }: QuotedOrder, text: string) => ({
  text,
  model: model.upstreamModel,
  voice: voice.upstreamVoice,
  speed,
});

const textMissing = () =>
  failure('INVALID_REQUEST', 'text is required with a payment.', { field: 'text', rule: 'required' });

const quotesMissing = () => failure('CONFIG_ERROR', 'Quotes are not set up here.', { setting: 'QUOTE_SECRET' });

/** A challenge that could not be paid would only mislead, so it is refused like the payment itself. */
const chainMissing = () =>
  failure('CONFIG_ERROR', 'Payment on the chain is not set up here: its node is not known.', {
    setting: 'X402_RPC_URL',
  });

const refuseOrder = ({ code, message, details }: OrderRefusal | QuoteRefusal) => failure(code, message, details);

/** A failed synthesis as the caller sees it; the reservation has been released by then. */
function speechFailure({ code, message, transient, retryAfterSeconds }: SpeechError) {
  const answer = failure(code, `${message} Nothing was settled.`, { transient });
  if (answer.status !== 503 || retryAfterSeconds === undefined) return answer;
  return { ...answer, headers: { 'retry-after': retryAfterSeconds } };
}
