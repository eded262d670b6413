import type { Quote as WireQuote } from '../../contract/types.ts';
import { readJson, type Shape, type Wire } from './api.ts';
import { priceOf, signedRate } from './catalog.ts';
import { checkPayee } from './challenge.ts';
import { sha256 } from './digest.ts';
import { UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import type { SpeechOrder } from './speech.ts';

export type Quote = Omit<Wire<WireQuote>, 'amountMicroUsd'> & { readonly amountMicroUsd: bigint };

const QUOTE: Shape = {
  quoteToken: 'string',
  textLength: 'number',
  textSha256: 'string',
  model: 'string',
  amountMicroUsd: 'amount',
  network: 'string',
  payTo: 'string',
  expiresAt: 'string',
};

/** Sends only length and SHA-256. With pinned keys it checks the quote against the metadata. @throws UntrustedError */
export async function readQuote(
  order: SpeechOrder,
  service: Service & { readonly signal?: AbortSignal | undefined },
): Promise<Quote> {
  const { api, catalog, metadata, signal } = service;
  const { text, ...voice } = order;
  const trimmed = text.trim();
  const model = await catalog.modelOf(order, signal);
  const body = { ...voice, model, textLength: trimmed.length, textSha256: await sha256(trimmed) };
  const data = await readJson(signal, QUOTE, (signal) => api.POST('/x402/tts/quote', { body, signal }));
  const quote = { ...data, amountMicroUsd: BigInt(data.amountMicroUsd) };
  if (!metadata) return quote;
  return metadata.check((payload) => {
    if (quote.network !== payload.payment.network) {
      throw new UntrustedError(
        'wrong_network',
        `network in the quote is ${quote.network} instead of ${payload.payment.network}.`,
      );
    }
    checkPayee(payload, quote.payTo);
    const price = priceOf(text, signedRate(payload, model));
    if (quote.amountMicroUsd !== price || quote.textSha256 !== body.textSha256 || quote.model !== model) {
      throw new UntrustedError(
        'wrong_price',
        `The quote (${quote.amountMicroUsd} micro-USD) does not match this order or its price of ${price}.`,
      );
    }
    return quote;
  }, signal);
}
