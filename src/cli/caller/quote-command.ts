import { formatUsd } from '../../lib/money.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';
import { readOrder, SPEECH_OPTIONS, SPEECH_USAGE } from './speech-options.ts';

/** `speechgate quote TEXT` */
await runCommand({
  usage: `speechgate quote TEXT|-
What a text would cost. Only its length and SHA-256 are sent.
${SPEECH_USAGE}`,
  example: 'speechgate quote "Hello world"',
  options: { ...COMMON_OPTIONS, ...SPEECH_OPTIONS },
  maxWords: 1,
  run: async (values, [word], output) => {
    const order = await readOrder(values, word);
    const { client } = await openCaller();
    const quote = await withProgress('Asking for the price', output.isJson, client.quote(order));
    const { textLength, model, amountMicroUsd, expiresAt } = quote;
    output.done(quote, [
      `${textLength} characters with ${serviceWords(model)}: ${formatUsd(amountMicroUsd)} USD until ${serviceWords(expiresAt)}`,
    ]);
  },
});
