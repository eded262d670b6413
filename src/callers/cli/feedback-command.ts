import { privateKeyToAccount } from 'viem/accounts';
import { UsageError } from '../../lib/arguments.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { defineCommand } from './command.ts';
import { assertWallet, withCaller } from './open-caller.ts';
import { readText } from './read-values.ts';

const CATEGORIES = ['integration_blocker', 'bug', 'pricing', 'feature_request', 'other'] as const;

export const feedbackSendCommand = defineCommand({
  usage: `speechgate feedback send MESSAGE|-
Sends a message to the operator of the service. The wallet signs it, which costs nothing and authorizes no payment.

  MESSAGE          at most 4000 characters; - reads it from standard input
  --category NAME  ${CATEGORIES.slice(0, 3).join(', ')},
                   ${CATEGORIES.slice(3).join(' or ')}; default: other
  --trace ID       the trace id of the request in question`,
  example: 'speechgate feedback send "The 402 names no amount." --category bug',
  options: { category: { type: 'string', default: 'other' }, trace: { type: 'string' } },
  maxWords: 1,
  run: async (values, { words: [word], output, host }) => {
    const category = CATEGORIES.find((each) => each === values.category);
    if (!category) throw new UsageError(`--category must be one of ${CATEGORIES.join(', ')}, not ${values.category}.`);
    const message = await readText(word, 'MESSAGE', host.stdin);
    await withCaller(host, {}, async ({ client, settings }) => {
      const wallet = privateKeyToAccount(assertWallet(settings));
      const details = { agent: 'speechgate', ...(values.trace !== undefined && { traceId: values.trace }) };
      const sending = client.feedback(wallet, { message, category, details });
      const sent = await output.withProgress('Sending', sending);
      output.done(sent, [
        `The feedback was sent at ${serviceWords(sent.receivedAt)}. Its id is ${serviceWords(sent.feedbackId)}.`,
      ]);
    });
  },
});
