import { formatUsd } from '../../lib/money.ts';
import { priceOf, type Quote, rateOf, readQuote, signedRate } from './catalog.ts';
import { checkChallenge, checkPayee, mismatchError, readChallenge, signPayment } from './challenge.ts';
import { decodeJson, sha256 } from './digest.ts';
import type { Offer, PaymentWay, Service, Terms, Wallet } from './payment-way.ts';
import { X402_TARGET } from './pending-purchase.ts';
import { bought, receiptOf } from './read-speech.ts';
import type { Reader } from './retry-until-resolved.ts';
import { readRefusal } from './service-error.ts';
import { audioStream, audioType, collect, type Speech, type SpeechOrder, wholeSpeech } from './speech.ts';
import { type Metadata, requireMetadata } from './trusted-metadata.ts';

export interface DirectOptions {
  /** Gets a quote by length and digest first, so that only the paid request sends the text. */
  readonly quoteFirst?: boolean;
}

/** Pays each request in USDC by one signed transfer. @param wallet holds USDC and needs no ether */
export function directX402(wallet: Wallet, { quoteFirst = false }: DirectOptions = {}): PaymentWay {
  return {
    flow: 'direct',
    wallet,
    offer: (order, terms) => offer(wallet, order, terms, quoteFirst),
  };
}

async function offer(wallet: Wallet, order: SpeechOrder, terms: Terms, quoteFirst: boolean): Promise<Offer> {
  const { api, baseUrl, catalog, signal } = terms;
  const metadata = requireMetadata(terms.metadata);
  const model = await catalog.modelOf(order, signal);
  // Reports an unknown model before the challenge is requested.
  await rateOf(model, terms);
  const quote = quoteFirst ? await readVerifiedQuote({ ...order, model }, terms, signal) : undefined;
  const text = order.text.trim();
  const unpaid = JSON.stringify(quote ? { quoteToken: quote.quoteToken } : { ...order, text, model });
  // The service requires the model, voice and speed of the quote (R29).
  const body = quote ? JSON.stringify({ ...order, model, quoteToken: quote.quoteToken, text }) : unpaid;
  const challenge = await readChallenge(signal, (signal) =>
    api.POST(X402_TARGET, { body: { text: unpaid }, bodySerializer: () => unpaid, signal }),
  );
  const checkWith = (metadata: Metadata) =>
    checkChallenge(challenge, {
      metadata,
      amountMicroUsd: quote?.amountMicroUsd ?? priceOf(order.text, signedRate(metadata, model)),
      path: X402_TARGET,
      ...(quote && { quotedPayee: quote.payTo }),
    });
  const requirements = await metadata.check(checkWith, signal);
  const request = { kind: 'speech' as const, baseUrl, target: X402_TARGET, body };
  return {
    maxMicroUsd: BigInt(requirements.amount),
    sign: () => signPayment(wallet, challenge, requirements, request),
  };
}

/** With pinned keys it checks the quote against the metadata. @throws UntrustedError */
export async function readVerifiedQuote(
  order: SpeechOrder,
  service: Service,
  signal: AbortSignal | undefined,
): Promise<Quote> {
  const quote = await readQuote(order, service, signal);
  const { metadata, catalog } = service;
  if (!metadata) return quote;
  const model = await catalog.modelOf(order, signal);
  const textSha256 = await sha256(order.text.trim());
  return metadata.check((payload) => {
    if (quote.network !== payload.payment.network) {
      throw mismatchError(
        'wrong_network',
        `The quote is for payment on ${quote.network}, but the signed metadata names ${payload.payment.network}.`,
      );
    }
    checkPayee(payload, quote.payTo);
    const price = priceOf(order.text, signedRate(payload, model));
    if (quote.amountMicroUsd !== price || quote.textSha256 !== textSha256 || quote.model !== model) {
      throw mismatchError(
        'wrong_price',
        `The quote of ${formatUsd(quote.amountMicroUsd)} USD is not for this text and model, which cost ${formatUsd(price)} USD.`,
      );
    }
    return quote;
  }, signal);
}

/** Reads the whole audio, because a cut response has to be retried with the same payment. */
export const readDirect: Reader<Speech> = async (paid) => {
  const { pending, response, body } = paid;
  if (!response.ok) return readRefusal(paid);
  const contentType = audioType(response);
  const bytes = await collect(audioStream(response, body));
  return bought(
    wholeSpeech(bytes, contentType, {
      ...receiptOf(paid, BigInt(pending.maxMicroUsd)),
      transaction: transactionOf(response),
      isReplay: response.headers.get('x-idempotent-replay') === 'true',
    }),
  );
};

export function transactionOf(response: Response): string | null {
  const header = response.headers.get('payment-response');
  try {
    const transaction: unknown = header === null ? null : decodeJson<{ transaction?: unknown }>(header).transaction;
    return typeof transaction === 'string' && /^0x[0-9a-f]{64}$/i.test(transaction) ? transaction : null;
  } catch {
    return null;
  }
}
