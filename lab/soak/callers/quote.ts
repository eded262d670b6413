import { createHash } from 'node:crypto';
import { jsonPost } from './card.ts';
import { isPassing, jsonOf, type Operation } from './operation.ts';
import { priceOf } from './text.ts';

export async function quote(operation: Operation, text: string): Promise<string | undefined> {
  const textSha256 = createHash('sha256').update(text).digest('hex');
  const sent = jsonPost('/x402/tts/quote', { textLength: text.length, textSha256 });
  const heard = await operation.retryUntilResolved(
    () => operation.ask(sent),
    (heard) => (isPassing(heard) ? undefined : heard),
  );
  const { quoteToken, amountMicroUsd } = (heard && jsonOf(heard)) ?? {};
  if (heard && amountMicroUsd !== Number(priceOf(text))) {
    operation.isWrong(`${text.length} characters were quoted at ${amountMicroUsd} micro-USD, status ${heard.status}`);
  }
  return quoteToken as string | undefined;
}
