import { formatUsd } from '../../lib/money.ts';
import { assertCanPay } from './can-pay.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { readFlow } from './flow-word.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';
import { shownAccount } from './shown-account.ts';

/** `speechgate balance` */
await runCommand({
  usage: `speechgate balance [--pay FLOW]
What the credit account has, or with x402 or prepaid the wallet's prepaid balance at the service.

  --pay FLOW       card, x402 or prepaid; otherwise as set by speechgate connect`,
  example: 'speechgate balance',
  options: { ...COMMON_OPTIONS, pay: { type: 'string' } },
  maxWords: 0,
  run: async ({ pay }, _words, output) => {
    const caller = await openCaller({ pay: pay === undefined ? undefined : readFlow(pay, '--pay') });
    assertCanPay(caller);
    const balance = await withProgress('Asking for the balance', output.isJson, caller.client.balance());
    const account = balance.flow === 'card' ? shownAccount(balance.account) : balance.account;
    const what = balance.flow === 'card' ? 'credit account' : 'prepaid balance of';
    output.done({ flow: balance.flow, account, balanceMicroUsd: balance.balanceMicroUsd }, [
      `${formatUsd(balance.balanceMicroUsd)} USD (${what} ${account})`,
    ]);
  },
});
