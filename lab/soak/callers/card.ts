import { drawHangUp } from './draws.ts';
import type { Customer, Open } from './flow.ts';
import type { Heard, Sent } from './line.ts';
import type { Operation, Outcome } from './operation.ts';
import { drawSlowText, drawText, priceOf } from './text.ts';
import { buyCredit, CENTS_OF_A_CALLER } from './top-up.ts';

const HANG_UPS = 0.03;
const STREAMED = 0.15;

/** Speech paid by card, buffered or streamed. The caller cannot retry such a request; an error means no charge. */
export const openCard: Open = async ({ world, operation }) => {
  const bought = await buyCredit(world, operation, CENTS_OF_A_CALLER);
  return { customer: cardCustomer(bought.keys.payer), bought: [bought] };
};

const cardCustomer = (account: string): Customer => ({
  longestPauseMs: 20,
  buy: (operation) => buy(operation, account),
});

async function buy(operation: Operation, account: string): Promise<Outcome> {
  const { random } = operation;
  const isStreamed = random.chance(STREAMED);
  const text = isStreamed ? drawSlowText(random) : drawText(random);
  const heard = await operation.pay(speech(text, account, random.chance(0.3)), drawHangUp(random, HANG_UPS));
  const end = endOf(operation, heard, text);
  if (end === 'broken off' && heard.isWhole) operation.isWrong('the answer ended before the speech did');
  return { flow: isStreamed ? 'card, streamed' : 'card', end, amountMicroUsd: priceOf(text), keys: { payer: account } };
}

function endOf(operation: Operation, heard: Heard, text: string): Outcome['end'] {
  if (operation.hears(heard, text)) return 'served';
  if (heard.status >= 400 || heard.isUnsent) return 'refused';
  return heard.hasHungUp ? 'left' : 'broken off';
}

function speech(text: string, account: string, isGet: boolean): Sent {
  const headers = { 'x-credit-account': account };
  if (isGet) return { method: 'GET', path: `/tts?text=${encodeURIComponent(text)}`, headers };
  return jsonPost('/tts', { text }, headers);
}

export const jsonPost = (path: string, value: unknown, headers: Readonly<Record<string, string>> = {}): Sent => ({
  method: 'POST',
  path,
  headers: { 'content-type': 'application/json', ...headers },
  body: JSON.stringify(value),
});
