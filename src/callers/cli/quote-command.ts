import { formatUsd } from '../../lib/money.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { defineCommand } from './command.ts';
import { withCaller } from './open-caller.ts';
import { idsOf, readOrder, SPEECH_OPTIONS, SPEECH_USAGE } from './read-values.ts';

export const quoteCommand = defineCommand({
  usage: `speechgate quote TEXT|-
Shows the price of a text. Sends only its length and SHA-256.
${SPEECH_USAGE}`,
  example: 'speechgate quote "Hello world"',
  options: SPEECH_OPTIONS,
  maxWords: 1,
  run: async (values, { words: [word], output, host }) => {
    const order = await readOrder(values, word, host.stdin);
    await withCaller(host, {}, async ({ client }) => {
      const named = { ...order, ...(await idsOf(order, client)) };
      const quote = await output.withProgress('Reading the price', client.quote(named));
      const { textLength, model, amountMicroUsd, expiresAt } = quote;
      output.done(quote, [
        `${textLength} characters with ${serviceWords(model)}: ${formatUsd(amountMicroUsd)} USD until ${serviceWords(expiresAt)}`,
      ]);
    });
  },
});
