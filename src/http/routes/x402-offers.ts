import type { Catalog } from '../../config/catalog.ts';
import type { Asset } from '../../config/network.ts';
import { currentPayee, type Payee, payablePayees } from '../../config/payees.ts';
import type { DatabaseIdentity } from '../../ledger/database-identity.ts';
import { makeOffer, type Offer } from '../../payments/x402/challenge.ts';
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
import { type OrderRefusal, type OrderRequest, placeOrder } from '../../speech/order.ts';
import { FOREIGN_DATABASE, PAYMENT_OFF, QUOTES_OFF } from '../config-errors.ts';
import { failure } from '../structured-error.ts';

type QuotedOrderRequest = QuotedRequest & { readonly quoteToken: string };

/** What a request for speech selects: by its text, or by a quote. */
export type OfferRequest = OrderRequest | QuotedOrderRequest;

export interface OfferedOrder {
  readonly order: QuotedOrder;
  readonly offers: readonly [Offer, ...Offer[]];
  /** The refusal if the quote has expired. A repetition of a payment made in time is answered all the same. */
  readonly expired: ReturnType<typeof refuseOrder> | undefined;
}

export interface PaymentTerms {
  readonly asset: Asset;
  readonly payees: readonly Payee[];
}

export interface X402OffersOptions {
  readonly catalog: Catalog;
  /** Undefined while x402 payment is off (R47). */
  readonly terms: PaymentTerms | undefined;
  readonly quotes: Quotes | undefined;
  readonly databaseIdentity: DatabaseIdentity;
}

/** Prices what is asked for, and names who may be paid for it. Writes nothing. */
export class X402Offers {
  readonly #options: X402OffersOptions;

  constructor(options: X402OffersOptions) {
    this.#options = options;
  }

  /** The order and its offers, or the refusal. */
  async offer(request: OfferRequest) {
    return 'quoteToken' in request ? this.#offerQuoted(request) : this.#offerAtRate(request);
  }

  /** Before money moves, the database must have confirmed its network; otherwise what is known so far counts. */
  async refuseForeignDatabase(movesMoney: boolean) {
    const { databaseIdentity } = this.#options;
    const mismatch =
      movesMoney && !databaseIdentity.isKnown ? await databaseIdentity.check() : databaseIdentity.mismatch;
    return mismatch && FOREIGN_DATABASE;
  }

  #offerAtRate(request: OrderRequest) {
    const { catalog, terms } = this.#options;
    const placed = placeOrder(catalog, request);
    if (placed.outcome === 'refused') return refuseOrder(placed);
    if (!terms) return PAYMENT_OFF;
    const { order } = placed;
    return { order, offers: offersFor(terms, order.priceMicroUsd), expired: undefined } satisfies OfferedOrder;
  }

  async #offerQuoted({ quoteToken, ...request }: QuotedOrderRequest) {
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
}

const refuseOrder = ({ code, message, details }: OrderRefusal | QuoteRefusal) => failure(code, message, details);

/** Offers that are accepted for the amount. The challenge names the first; retiring payees are still honoured (R45). */
export function offersFor({ asset, payees }: PaymentTerms, amountMicroUsd: bigint): [Offer, ...Offer[]] {
  const retiring = payablePayees(payees, new Date()).filter(({ status }) => status === 'retiring');
  const current = makeOffer(asset, amountMicroUsd, currentPayee(payees).address);
  return [current, ...retiring.map(({ address }) => makeOffer(asset, amountMicroUsd, address))];
}
