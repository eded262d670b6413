import type {
  CredentialProofs,
  GetX402SpeechRequest,
  GetX402SpeechResult,
  X402Operations,
} from '../contract/operations.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import type { Belonging } from '../ledger/belonging.ts';
import type { BufferedSpeech } from '../payments/buffered-delivery.ts';
import type { DepositReplays, Deposits } from '../payments/deposits.ts';
import { DIRECT_HEADERS, NOT_SETTLED } from '../payments/direct-payment.ts';
import type { PrepaidBalance } from '../payments/prepaid-balance.ts';
import type { Catalog } from '../speech/catalog.ts';
import { type OrderRefusal, type OrderRequest, placeOrder, utteranceOf } from '../speech/order.ts';
import { depositResource, speechResource } from '../x402/challenge.ts';
import type { ServiceMetadata } from '../x402/metadata.ts';
import type { Asset } from '../x402/network.ts';
import { makeOffer } from '../x402/offer.ts';
import type { Payee } from '../x402/payees.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';
import { invalidQuote, placeQuotedOrder, type QuotedRequest, type QuoteRefusal } from '../x402/quoted-order.ts';
import { isExpired, type Quote, type Quotes } from '../x402/quotes.ts';
import { chooseFlow, type OfferedFlow, refuseForeignHeaders, refuseFormerHeader } from './flows.ts';
import { issueQuote, selectQuoted } from './issue-quote.ts';
import { type DepositRefusal, makeDeposit, type OfferedDeposits } from './make-deposit.ts';
import { closedSpeech, type Pauses, pausedAnswer, pausedSpeech } from './paused.ts';
import { askForPayment, offersFor, showExample } from './payment-required.ts';
import { readPrepaidAccount } from './prepaid-account.ts';
import { getPrepaidAudio, type PrepaidAudioParts } from './prepaid-audio.ts';
import { providerMissing, speechFailure } from './speech-failure.ts';
import { type OfferedOrder, quoteExpired, textMissing } from './x402-order.ts';
import { answerPrevious, type PreviousRequests, sellX402Speech, type X402Flow } from './x402-speech.ts';

export interface X402Options {
  readonly serviceName: string;
  readonly catalog: Catalog;
  /** Undefined while no speech provider is configured. */
  readonly speech: BufferedSpeech | undefined;
  /** Who is paid in what. Undefined while payment under x402 is off (R47). */
  readonly terms: { readonly asset: Asset; readonly payees: readonly Payee[] } | undefined;
  /** Whether the database's money is of these terms. */
  readonly belonging: Belonging;
  /** Those that pay for speech at these endpoints. */
  readonly flows: readonly (OfferedFlow<X402Flow> & { readonly previous: PreviousRequests })[];
  /** Of the flows of other endpoints (R36). */
  readonly foreignHeaders: readonly string[];
  /** Undefined while payment under x402 is off, or the chain can't be asked (R58). */
  readonly deposits: Deposits | undefined;
  readonly depositReplays: DepositReplays;
  /** Undefined while payment under x402 is off. */
  readonly prepaid: PrepaidBalance | undefined;
  /** Of prepaid requests whose answers did not arrive, and the base URL. */
  readonly prepaidAudio: PrepaidAudioParts;
  readonly pauses: Pauses;
  readonly quotes: Quotes | undefined;
  readonly metadata: ServiceMetadata | undefined;
}

/** A request for speech, with the headers that the contract declares for it. */
interface SpeechRequest {
  readonly asked: OrderRequest | QuotedOrderRequest;
  readonly headers: GetX402SpeechRequest['headers'];
}

type QuotedOrderRequest = QuotedRequest & { readonly quoteToken: string };

const OFF = 'Payment in USDC is not set up here.';

export interface X402Parts {
  readonly operations: X402Operations<OperationContext>;
  readonly proofs: CredentialProofs<OperationContext>;
}

/** Text to speech paid in USDC under x402, the challenge to who shows no payment (R27), quotes, and the signed metadata. */
export function x402Operations(options: X402Options): X402Parts {
  const { serviceName, catalog, speech, terms, deposits, prepaid, prepaidAudio, quotes, metadata } = options;
  const { belonging, flows, foreignHeaders, pauses } = options;
  const { baseUrl } = prepaidAudio;
  const allHeaders = [...foreignHeaders, ...flows.flatMap(({ headers }) => headers)];
  const headersBut = (own: readonly string[]) => allHeaders.filter((name) => !own.includes(name));
  const besidePrepaid = headersBut(PREPAID.headers);
  const besideDeposit = { always: foreignHeaders, withPayment: headersBut(DIRECT_HEADERS) };
  const resources = {
    GET: speechResource(baseUrl, serviceName, 'GET'),
    POST: speechResource(baseUrl, serviceName, 'POST'),
    deposit: depositResource(baseUrl, serviceName),
  };

  async function answerSpeech(
    method: 'GET' | 'POST',
    request: SpeechRequest,
    context: OperationContext,
  ): Promise<GetX402SpeechResult> {
    const { headers } = request;
    const resource = resources[method];
    const { chosen, ...read } = await readSpeechRequest(request, context);
    if (read.outcome === 'refused') {
      if (!chosen) return read.refusal;
      const { previous } = chosen;
      const isMetered = previous.name === 'direct';
      return answerPrevious({ previous, headers, links: prepaidAudio, isMetered }, read.refusal, context);
    }
    const { offered, speech, flow } = read;
    if (chosen && flow) {
      const { previous } = chosen;
      const refusal = refuseNow(offered, flow, context);
      return sellX402Speech(
        { flow, previous, headers, offered, speech, resource, links: prepaidAudio, refusal },
        context,
      );
    }
    const former = refuseFormerHeader(context);
    if (former) return former;
    if (offered.hasExpired) return quoteExpired();
    const closed = pausedSpeech(pauses, 'direct');
    if (closed) return speechFailure(closed, NOT_SETTLED);
    return refuseText(offered, speech) ?? (context.isBare ? showExample : askForPayment)(resource, offered.offers[0]);
  }

  /**
   * All that is known of a request before its payment is looked at, in the order of R7. Nothing is written to find out.
   * `chosen` is the flow whose payment the request shows, also where it is refused.
   */
  async function readSpeechRequest({ asked }: SpeechRequest, context: OperationContext) {
    const offered = 'quoteToken' in asked ? await offerQuoted(asked) : offer(asked);
    const choice = chooseFlow(flows, context, foreignHeaders);
    if ('status' in choice) return refuse('status' in offered ? offered : choice);
    const { chosen } = choice;
    if ('status' in offered) return refuse(offered, chosen);
    if (!speech) return refuse(providerMissing(), chosen);
    if (await isForeign(chosen !== undefined)) return refuse(foreignDatabase(), chosen);
    const flow = chosen?.flow;
    if (chosen ? !flow : !deposits) return refuse(chainMissing(), chosen);
    return { outcome: 'read' as const, offered, speech, flow, chosen };
  }

  /** Why nothing new is sold for a payment at this moment; undefined when it is. */
  function refuseNow({ order, hasExpired }: OfferedOrder, flow: X402Flow, context: OperationContext) {
    if (order.text === undefined) return textMissing();
    const closed = closedSpeech(pauses, flow.name, context);
    if (closed) return speechFailure(closed, flow.untaken);
    return hasExpired ? quoteExpired() : undefined;
  }

  /** Whether a request could be paid by whoever signed it. */
  async function hasVerifiedCredential(request: SpeechRequest, context: OperationContext): Promise<boolean> {
    const read = await readSpeechRequest(request, context);
    if (read.outcome === 'refused' || read.offered.hasExpired || read.offered.order.text === undefined) return false;
    const { flow } = read;
    if (!flow?.verifies) return false;
    const shown = flow.credentialOf(request.headers);
    return shown.outcome === 'read' && flow.verifies(shown.credential, context);
  }

  /** Nobody is asked to pay for what would not be spoken. The text of a quote may be shown with its payment only. */
  function refuseText({ order }: OfferedOrder, { admission }: BufferedSpeech) {
    const refusal = order.text === undefined ? undefined : admission.refuse(utteranceOf(order, order.text));
    return refusal && speechFailure(refusal, NOT_SETTLED);
  }

  /** Money is moved only once the database has told that it is of these terms; for anything else, what is known counts. */
  async function isForeign(movesMoney: boolean): Promise<boolean> {
    return (movesMoney && !belonging.isKnown ? await belonging.check() : belonging.mismatch) !== undefined;
  }

  function offer(request: OrderRequest) {
    const placed = placeOrder(catalog, request);
    if (placed.outcome === 'refused') return refuseOrder(placed);
    if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
    const { order } = placed;
    return { order, offers: offersFor(terms, order.priceMicroUsd), hasExpired: false } satisfies OfferedOrder;
  }

  async function offerQuoted({ quoteToken, ...request }: QuotedOrderRequest) {
    if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
    if (!quotes) return quotesMissing();
    const quote = await quotes.read(quoteToken);
    const placed = quote ? placeQuotedOrder({ catalog, ...terms }, quote, request) : invalidQuote;
    if (placed.outcome === 'refused') return refuseOrder(placed);
    const { amountMicroUsd, payTo } = quote as Quote;
    const offered: OfferedOrder = {
      order: placed.order,
      offers: [makeOffer(terms.asset, amountMicroUsd, payTo)],
      hasExpired: isExpired(quote as Quote, Date.now()),
    };
    return offered;
  }

  /** What a deposit is made with, or why none is made now. */
  async function offerDeposits(isPaid: boolean): Promise<OfferedDeposits | DepositRefusal> {
    if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
    if (!deposits) return chainMissing();
    if (await isForeign(isPaid)) return foreignDatabase();
    return pauses.has('deposit') ? pausedAnswer('deposit') : { terms, deposits };
  }

  const operations: X402Operations<OperationContext> = {
    createX402Speech: ({ body, headers }, context) => answerSpeech('POST', { asked: body, headers }, context),

    getX402Speech: ({ query, headers }, context) => answerSpeech('GET', { asked: query, headers }, context),

    getPrepaidAccount: async (request, context) => {
      if (!prepaid) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
      if (await isForeign(true)) return foreignDatabase();
      return readPrepaidAccount({ balances: prepaid, foreignHeaders: besidePrepaid }, request, context);
    },

    getPrepaidAudio: (request, context) => getPrepaidAudio(prepaidAudio, request, context),

    createDeposit: async (request, context) => {
      const isPaid = request.headers['payment-signature'] !== undefined;
      const offered = await offerDeposits(isPaid);
      const parts = { resource: resources.deposit, replays: options.depositReplays, foreignHeaders: besideDeposit };
      return makeDeposit({ ...parts, offered }, request, context);
    },

    createQuote: async ({ body }, context) => {
      const foreign = refuseForeignHeaders(context, foreignHeaders);
      if (foreign) return foreign;
      const selected = selectQuoted(catalog, body);
      if ('status' in selected) return selected;
      if (!terms) return failure('CONFIG_ERROR', OFF, { setting: 'X402_PAY_TO' });
      if (!quotes) return quotesMissing();
      if (await isForeign(false)) return foreignDatabase();
      return issueQuote({ quotes, terms }, selected.selection, body);
    },

    getServiceMetadata: async () => {
      if (!metadata) {
        const details = { setting: terms ? 'SIGNING_KEYS_FILE' : 'X402_PAY_TO' };
        return failure('CONFIG_ERROR', 'Signed metadata is not set up here.', details);
      }
      if (await isForeign(false)) return foreignDatabase();
      const signed = await metadata.read();
      if (!signed) return signingKeyExpired();
      const { document, maxAgeSeconds } = signed;
      return { status: 200, headers: { 'cache-control': `public, max-age=${maxAgeSeconds}` }, body: document };
    },
  };
  return {
    operations,
    proofs: {
      createX402Speech: ({ body, headers }, context) => hasVerifiedCredential({ asked: body, headers }, context),
      getX402Speech: ({ query, headers }, context) => hasVerifiedCredential({ asked: query, headers }, context),
    },
  };
}

const quotesMissing = () => failure('CONFIG_ERROR', 'Quotes are not set up here.', { setting: 'QUOTE_SECRET' });

/** A challenge that could not be paid would only mislead, so it is refused like the payment itself. */
const chainMissing = () =>
  failure('CONFIG_ERROR', 'Payment on the chain is not set up here: its node is not known.', {
    setting: 'X402_RPC_URL',
  });

const signingKeyExpired = () =>
  failure('CONFIG_ERROR', 'The key that signs the metadata has expired. The operator has to rotate it.', {
    setting: 'SIGNING_KEYS_FILE',
    reason: 'signing_key_expired',
  });

const foreignDatabase = () =>
  failure('CONFIG_ERROR', "The service's database holds money of another network. The operator has to repair it.", {
    reason: 'database_of_another_network',
    setting: 'X402_NETWORK',
  });

const refuse = <Refusal, Flow = undefined>(refusal: Refusal, chosen?: Flow) => ({
  outcome: 'refused' as const,
  refusal,
  chosen,
});

const refuseOrder = ({ code, message, details }: OrderRefusal | QuoteRefusal) => failure(code, message, details);
