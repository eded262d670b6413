import { formatUsd } from '../../lib/money.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { assertCanPay, withCaller } from './open-caller.ts';
import { withProgress } from './output.ts';
import { maskedAccount, readFlow } from './read-values.ts';

await runCommand({
  usage: `speechgate balance [--pay FLOW]
Shows the balance of the credit account, or with x402 or prepaid the wallet's prepaid balance.

  --pay FLOW       card, x402 or prepaid; default: as set by speechgate connect`,
  example: 'speechgate balance',
  options: { ...COMMON_OPTIONS, pay: { type: 'string' } },
  maxWords: 0,
  run: async ({ pay }, _words, output) => {
    const options = { pay: pay === undefined ? undefined : readFlow(pay, '--pay') };
    await withCaller(options, async (caller) => {
      assertCanPay(caller);
      const balance = await withProgress('Reading the balance', output.isJson, caller.client.balance());
      const account = balance.flow === 'card' ? maskedAccount(balance.account) : balance.account;
      const description = balance.flow === 'card' ? 'credit account' : 'prepaid balance of';
      output.done({ flow: balance.flow, account, balanceMicroUsd: balance.balanceMicroUsd }, [
        `${formatUsd(balance.balanceMicroUsd)} USD (${description} ${account})`,
      ]);
    });
  },
});
