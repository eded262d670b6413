import { createHash } from 'node:crypto';
import { jsonPost } from './card.ts';
import type { Open } from './flow.ts';
import { isPassing, jsonOf, type Operation } from './operation.ts';
import { drawText, priceOf } from './text.ts';

/** Quotes that nobody pays. */
export const openQuote: Open = async () => ({
  customer: {
    longestPauseMs: 300,
    buy: async (operation) => {
      const text = drawText(operation.random);
      const token = await quote(operation, text);
      return { flow: 'quote', end: token === undefined ? 'open' : 'served', amountMicroUsd: 0n };
    },
  },
  bought: [],
});

/** The token of a quote for the text, at its price; undefined when none was given in time. */
export async function quote(operation: Operation, text: string): Promise<string | undefined> {
  const textSha256 = createHash('sha256').update(text).digest('hex');
  const sent = jsonPost('/x402/tts/quote', { textLength: text.length, textSha256 });
  const heard = await operation.pursue(
    () => operation.ask(sent),
    (heard) => (isPassing(heard) ? undefined : heard),
  );
  const { quoteToken, amountMicroUsd } = (heard && jsonOf(heard)) ?? {};
  if (heard && amountMicroUsd !== Number(priceOf(text))) {
    operation.isWrong(`${text.length} characters were quoted at ${amountMicroUsd} micro-USD, status ${heard.status}`);
  }
  return quoteToken as string | undefined;
}
