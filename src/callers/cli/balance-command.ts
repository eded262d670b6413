import { formatUsd } from '../../lib/money.ts';
import { defineCommand } from './command.ts';
import { assertCanPay, withCaller } from './open-caller.ts';
import { maskedAccount, readFlow } from './read-values.ts';

export const balanceCommand = defineCommand({
  usage: `speechgate balance [--pay FLOW]
Shows the balance of the credit account, or with x402 or prepaid the wallet's prepaid balance.

  --pay FLOW       card, x402 or prepaid; default: as set by speechgate connect`,
  example: 'speechgate balance',
  options: { pay: { type: 'string' } },
  run: async ({ pay }, { output, host }) => {
    const options = { pay: pay === undefined ? undefined : readFlow(pay, '--pay') };
    await withCaller(host, options, async (caller) => {
      assertCanPay(caller);
      const balance = await output.withProgress('Reading the balance', caller.client.balance());
      const account = balance.flow === 'card' ? maskedAccount(balance.account) : balance.account;
      const description = balance.flow === 'card' ? 'credit account' : 'prepaid balance of';
      output.done({ flow: balance.flow, account, balanceMicroUsd: balance.balanceMicroUsd }, [
        `${formatUsd(balance.balanceMicroUsd)} USD (${description} ${account})`,
      ]);
    });
  },
});
