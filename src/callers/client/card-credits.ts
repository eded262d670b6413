import { readJson } from './api.ts';
import { priceOf, rateOf } from './catalog.ts';
import { SpeechgateError } from './errors.ts';
import type { Balance, Offer, PaymentWay, Service, Terms } from './payment-way.ts';
import { CARD_TARGET, JOB_TARGET, type PendingPurchase } from './pending-purchase.ts';
import type { SpeechOrder } from './speech.ts';

/** Pays from a credit account. @param accountId a bearer secret */
export function cardCredits(accountId: string): PaymentWay {
  return {
    flow: 'card',
    offer: (order, terms) => offer(accountId, order, terms),
    balance: (service, signal) => balance(accountId, service, signal),
  };
}

interface CardTerms {
  readonly baseUrl: string;
  readonly isDurable: boolean;
  readonly maxMicroUsd: bigint;
}

/** @throws SpeechgateError */
export function cardRequest(accountId: string, order: SpeechOrder, terms: CardTerms): PendingPurchase {
  const { baseUrl, isDurable, maxMicroUsd } = terms;
  if (!/^[\x21-\x7e]+$/.test(accountId)) {
    throw new SpeechgateError(
      'accountId has characters that an HTTP header cannot have. Pass the UUID of a credit account. You were not charged.',
    );
  }
  const identifier = crypto.randomUUID();
  return {
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
    body: JSON.stringify({ ...order, text: order.text.trim() }),
    maxMicroUsd: String(maxMicroUsd),
    expiresAt: null,
  };
}

async function offer(accountId: string, order: SpeechOrder, terms: Terms): Promise<Offer> {
  const { catalog, baseUrl, signal, isDurable } = terms;
  const model = await catalog.modelOf(order, signal);
  const maxMicroUsd = priceOf(order.text, await rateOf(model, terms));
  const pending = cardRequest(accountId, { ...order, model }, { baseUrl, isDurable, maxMicroUsd });
  return { maxMicroUsd, sign: async () => pending };
}

async function balance(accountId: string, { api }: Service, signal?: AbortSignal): Promise<Balance> {
  const { balanceMicroUsd } = await readJson(signal, { balanceMicroUsd: 'amount' }, (signal) =>
    api.GET('/credits/{accountId}', { params: { path: { accountId } }, signal }),
  );
  return { flow: 'card', account: accountId, balanceMicroUsd: BigInt(balanceMicroUsd) };
}

export function topUpLink(
  baseUrl: string,
  { amountCents, account }: { readonly amountCents?: number; readonly account?: string },
): string {
  const url = new URL('/top-up', baseUrl);
  if (amountCents !== undefined) url.searchParams.set('amount', String(amountCents));
  if (account !== undefined) url.searchParams.set('account', account);
  return url.href;
}
