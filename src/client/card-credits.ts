import { SpeechgateError } from './errors.ts';
import type { Balance, Offer, PaymentWay, Service, Terms } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { priceOf } from './price.ts';
import { rateOf } from './rate.ts';
import { read } from './reading.ts';
import type { SpeechOrder } from './speech.ts';

/** Where speech is paid from a credit account: with its audio streamed, or as a job. */
export const CARD_TARGET = '/tts';
export const JOB_TARGET = '/tts?async=true';

/** Pays from a credit account that was bought by card. @param accountId the bearer id: keep it secret */
export function cardCredits(accountId: string): PaymentWay {
  return {
    flow: 'card',
    offer: (order, terms) => offer(accountId, order, terms),
    balance: (service, signal) => balance(accountId, service, signal),
  };
}

async function offer(accountId: string, order: SpeechOrder, terms: Terms): Promise<Offer> {
  const { catalog, baseUrl, signal, isDurable } = terms;
  if (!/^[\x21-\x7e]+$/.test(accountId)) throw new SpeechgateError("The account's id can not be sent as a header.");
  const model = await catalog.modelOf(order, signal);
  const maxMicroUsd = priceOf(order.text, await rateOf(model, terms));
  const identifier = crypto.randomUUID();
  const pending: PendingPurchase = {
    flow: 'card',
    kind: 'speech',
    identifier,
    baseUrl,
    method: 'POST',
    target: isDurable ? JOB_TARGET : CARD_TARGET,
    headers: {
      'content-type': 'application/json',
      'x-credit-account': accountId,
      'x-credit-max-amount': String(maxMicroUsd),
      ...(isDurable && { 'idempotency-key': identifier }),
    },
    body: JSON.stringify({ ...order, text: order.text.trim(), model }),
    maxMicroUsd: String(maxMicroUsd),
    expiresAt: null,
  };
  return { maxMicroUsd, sign: async () => pending };
}

async function balance(accountId: string, { api }: Service, signal?: AbortSignal): Promise<Balance> {
  const { balanceMicroUsd } = await read(signal, { balanceMicroUsd: 'amount' }, (signal) =>
    api.GET('/credits/{accountId}', { params: { path: { accountId } }, signal }),
  );
  return { flow: 'card', account: accountId, balanceMicroUsd: BigInt(balanceMicroUsd) };
}
