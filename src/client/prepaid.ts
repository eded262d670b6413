import { X402_TARGET } from './direct-x402.ts';
import type { Offer, PaymentWay, Terms, Wallet } from './payment-way.ts';
import { prepaidBalance } from './prepaid-balance.ts';
import { priceOf } from './price.ts';
import { rateOf } from './rate.ts';
import { required } from './sign-payment.ts';
import { signPrepaid } from './sign-prepaid.ts';
import type { SpeechOrder } from './speech.ts';

/** Pays from the balance that the wallet has deposited, by a signature for each request. */
export function prepaid(wallet: Wallet): PaymentWay {
  return {
    flow: 'prepaid',
    wallet,
    offer: (order, terms) => offer(wallet, order, terms),
    balance: (service, signal) => prepaidBalance(wallet, service, signal),
  };
}

async function offer(wallet: Wallet, order: SpeechOrder, terms: Terms): Promise<Offer> {
  const { baseUrl, catalog, signal } = terms;
  const trusted = required(terms.metadata);
  const model = await catalog.modelOf(order, signal);
  const maxMicroUsd = priceOf(order.text, await rateOf(model, terms));
  const metadata = await trusted.read(signal);
  const call = {
    method: 'POST' as const,
    target: X402_TARGET,
    body: JSON.stringify({ ...order, text: order.text.trim(), model }),
    maxMicroUsd,
  };

  async function sign() {
    const { headers, nonce, expiry } = await signPrepaid(wallet, metadata, call);
    const { method, target, body } = call;
    return {
      flow: 'prepaid' as const,
      kind: 'speech' as const,
      identifier: nonce,
      baseUrl,
      method,
      target,
      headers: { 'content-type': 'application/json', ...headers },
      body,
      maxMicroUsd: String(maxMicroUsd),
      expiresAt: expiry,
    };
  }
  return { maxMicroUsd, sign };
}
