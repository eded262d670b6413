import { checkChallenge } from './check-challenge.ts';
import type { Offer, PaymentWay, Terms, Wallet } from './payment-way.ts';
import { priceOf } from './price.ts';
import { readQuote } from './quote.ts';
import { rateOf, signedRate } from './rate.ts';
import { newIdentifier, readChallenge, required, signPayment } from './sign-payment.ts';
import type { SpeechOrder } from './speech.ts';
import type { Metadata } from './verify-metadata.ts';

export const X402_TARGET = '/x402/tts';

export interface DirectOptions {
  /** Asks for the price by length and digest first, so that the text is sent with the payment only. */
  readonly quoteFirst?: boolean;
}

/** Pays each request in USDC, by x402's official client. @param wallet holds the USDC; it needs no ether */
export function directX402(wallet: Wallet, { quoteFirst = false }: DirectOptions = {}): PaymentWay {
  return {
    flow: 'direct',
    wallet,
    offer: (order, terms) => offer(wallet, order, terms, quoteFirst),
  };
}

async function offer(wallet: Wallet, order: SpeechOrder, terms: Terms, quoteFirst: boolean): Promise<Offer> {
  const { api, baseUrl, catalog, signal } = terms;
  const metadata = required(terms.metadata);
  const model = await catalog.modelOf(order, signal);
  // Before the challenge, so that a model that the service does not have is told as such.
  await rateOf(model, terms);
  const quote = quoteFirst ? await readQuote({ ...order, model }, { ...terms, metadata }) : undefined;
  const text = order.text.trim();
  const unpaid = JSON.stringify(quote ? { quoteToken: quote.quoteToken } : { ...order, text, model });
  // With model, voice and speed: the service refuses a quote for others (R29).
  const body = quote ? JSON.stringify({ ...order, model, quoteToken: quote.quoteToken, text }) : unpaid;
  const challenge = await readChallenge(signal, (signal) =>
    api.POST(X402_TARGET, { body: { text: unpaid }, bodySerializer: () => unpaid, signal }),
  );
  const check = (metadata: Metadata) =>
    checkChallenge(challenge, {
      metadata,
      amountMicroUsd: quote?.amountMicroUsd ?? priceOf(order.text, signedRate(metadata, model)),
      path: X402_TARGET,
      ...(quote && { quotedPayee: quote.payTo }),
    });
  const asked = await metadata.holds(check, signal);

  async function sign() {
    const identifier = newIdentifier();
    const { header, validBefore } = await signPayment(wallet, challenge, asked, identifier);
    return {
      flow: 'direct' as const,
      kind: 'speech' as const,
      identifier,
      baseUrl,
      method: 'POST' as const,
      target: X402_TARGET,
      headers: { 'content-type': 'application/json', 'payment-signature': header },
      body,
      maxMicroUsd: asked.amount,
      expiresAt: validBefore,
    };
  }
  return { maxMicroUsd: BigInt(asked.amount), sign };
}
