import { priceOf, rateOf, signedRate } from './catalog.ts';
import { checkChallenge, readChallenge, signPayment } from './challenge.ts';
import type { Offer, PaymentWay, Terms, Wallet } from './payment-way.ts';
import { readQuote } from './quote.ts';
import type { SpeechOrder } from './speech.ts';
import { type Metadata, requireMetadata } from './trusted-metadata.ts';

export const X402_TARGET = '/x402/tts';

export interface DirectOptions {
  /** Gets a quote by length and digest first, so that only the paid request sends the text. */
  readonly quoteFirst?: boolean;
}

/** Pays each request in USDC with the official x402 client. @param wallet holds USDC and needs no ether */
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
  const quote = quoteFirst ? await readQuote({ ...order, model }, { ...terms, metadata }) : undefined;
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
