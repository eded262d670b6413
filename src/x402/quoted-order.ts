import type { Catalog } from '../speech/catalog.ts';
import { findModel, type Order, type OrderRefusal, refuseTooLong } from '../speech/order.ts';
import { priceMicroUsd } from '../speech/price.ts';
import type { Asset } from './network.ts';
import { type Payee, payablePayees } from './payees.ts';
import { type Quote, textSha256 } from './quotes.ts';

export interface QuotedRequest {
  readonly text?: string | undefined;
  readonly model?: string | undefined;
  readonly voice?: string | undefined;
  readonly speed?: number | undefined;
}

export interface QuoteRefusal {
  readonly outcome: 'refused';
  readonly code: 'INVALID_QUOTE' | 'QUOTE_BODY_MISMATCH';
  readonly message: string;
  readonly details: Record<string, string | number>;
}

/** What a quote was made for, at the price it was made for (R29). */
export interface QuotedOrder extends Omit<Order, 'text' | 'ratePicoUsd'> {
  /** Trimmed; undefined when only the challenge is asked for. */
  readonly text: string | undefined;
  /** In 10^-12 USD per character; null when the quoted price is of a rate that the catalog has no longer. */
  readonly ratePicoUsd: bigint | null;
}

export const invalidQuote: QuoteRefusal = {
  outcome: 'refused',
  code: 'INVALID_QUOTE',
  message: 'quoteToken is no valid quote of this service. Get a new one from POST /x402/tts/quote.',
  details: { field: 'quoteToken', rule: 'signature' },
};

/**
 * Holds a request against its quote: a member that is given must be the quoted one, and the text have the quoted length
 * and digest. The price is the quoted one, whatever the catalog says by now. Whether the quote has expired is not asked
 * here, since a request that was paid in time may be repeated.
 */
export function placeQuotedOrder(
  { catalog, asset, payees }: { catalog: Catalog; asset: Asset; payees: readonly Payee[] },
  quote: Quote,
  request: QuotedRequest,
): { readonly outcome: 'placed'; readonly order: QuotedOrder } | QuoteRefusal | OrderRefusal {
  const model = findModel(catalog, quote.model);
  const voice = model?.voices.find(({ id }) => id === quote.voice);
  const isPayable = payablePayees(payees, new Date()).some(({ address }) => address === quote.payTo);
  if (!model || !voice || quote.network !== asset.network || !isPayable) return invalidQuote;

  for (const field of ['model', 'voice', 'speed'] as const) {
    if (request[field] !== undefined && request[field] !== quote[field]) return mismatch(field);
  }
  const text = request.text?.trim();
  if (text !== undefined) {
    const refusal = refuseTooLong('text', text.length, model);
    if (refusal) return refusal;
    const isQuoted = text.length === quote.textLength && textSha256(text) === quote.textSha256;
    if (!isQuoted) return mismatch('text');
  }
  const { speed, textLength: characters, amountMicroUsd } = quote;
  const isAtThisRate = priceMicroUsd(characters, model.ratePicoUsd) === amountMicroUsd;
  const ratePicoUsd = isAtThisRate ? model.ratePicoUsd : null;
  return {
    outcome: 'placed',
    order: { model, voice, speed, text, characters, ratePicoUsd, priceMicroUsd: amountMicroUsd },
  };
}

const mismatch = (field: string): QuoteRefusal => ({
  outcome: 'refused',
  code: 'QUOTE_BODY_MISMATCH',
  message: `${field} is not what the quote was made for. Send what was quoted, or get a new quote.`,
  details: { field, rule: 'quote' },
});
