import type { Quote as WireQuote } from '../contract/types.ts';
import type { Wire } from './api.ts';
import { checkPayee } from './check-challenge.ts';
import { sha256 } from './digest.ts';
import { UntrustedError } from './errors.ts';
import type { Service } from './payment-way.ts';
import { priceOf } from './price.ts';
import { signedRate } from './rate.ts';
import { read } from './reading.ts';
import type { Shape } from './shape.ts';
import type { SpeechOrder } from './speech.ts';

/** A price that holds until it expires. */
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

/**
 * Asks for the price of an order, of which only length and SHA-256 leave. With pinned keys it is held against the signed
 * metadata.
 * @throws UntrustedError when it names another network, payee or price than the metadata
 */
export async function readQuote(
  order: SpeechOrder,
  {
    api,
    catalog,
    metadata,
    signal,
  }: Pick<Service, 'api' | 'catalog' | 'metadata'> & { signal?: AbortSignal | undefined },
): Promise<Quote> {
  const { text, ...voice } = order;
  const trimmed = text.trim();
  const model = await catalog.modelOf(order, signal);
  const body = { ...voice, model, textLength: trimmed.length, textSha256: await sha256(trimmed) };
  const data = await read(signal, QUOTE, (signal) => api.POST('/x402/tts/quote', { body, signal }));
  const quote = { ...data, amountMicroUsd: BigInt(data.amountMicroUsd) };
  if (!metadata) return quote;
  return metadata.holds((payload) => {
    if (quote.network !== payload.payment.network) {
      throw new UntrustedError('wrong_network', `The quote names ${quote.network}.`);
    }
    checkPayee(payload, quote.payTo);
    const price = priceOf(text, signedRate(payload, model));
    if (quote.amountMicroUsd !== price || quote.textSha256 !== body.textSha256 || quote.model !== model) {
      throw new UntrustedError('wrong_price', `The quote asks for ${quote.amountMicroUsd} instead of ${price}.`);
    }
    return quote;
  }, signal);
}
