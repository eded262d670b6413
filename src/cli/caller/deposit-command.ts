import { OutcomeUnknownError } from '../../client/errors.ts';
import { formatUsd } from '../../lib/money.ts';
import { UsageError } from '../usage-error.ts';
import { assertCanPay, paid } from './can-pay.ts';
import { capsLine } from './caps.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { interruption } from './interrupt.ts';
import { KeptPurchases } from './kept-purchases.ts';
import { openCaller } from './open-caller.ts';
import { withProgress } from './progress.ts';
import { readUsd } from './usd.ts';

/** `speechgate deposit AMOUNT` */
await runCommand({
  usage: `speechgate deposit AMOUNT
Puts USDC of the wallet onto its prepaid balance, from which say --pay prepaid is paid. It is not paid back.

  AMOUNT           US dollars, such as 1.00`,
  example: 'speechgate deposit 1.00',
  options: COMMON_OPTIONS,
  maxWords: 1,
  run: async (_values, [word], output) => {
    if (word === undefined) throw new UsageError('AMOUNT is missing, such as 1.00.');
    const amountMicroUsd = readUsd(word, 'AMOUNT');
    const caller = await openCaller({ pay: 'prepaid' });
    assertCanPay(caller);
    output.note(`${capsLine(caller.caps)} They count what is spent from the balance, not the deposit.`);
    const depositing = caller.client.deposit(amountMicroUsd, { signal: interruption() });
    const deposit = await withProgress(
      'Waiting until it is on the chain',
      output.isJson,
      paid(caller, depositing),
    ).catch(async (error) => {
      if (error instanceof OutcomeUnknownError)
        await new KeptPurchases(caller.settings.folder).keep({ pending: error.pending, out: null });
      throw error;
    });
    const { creditedMicroUsd, balanceMicroUsd } = deposit;
    output.done(deposit, [
      `${formatUsd(creditedMicroUsd)} USD deposited, ${formatUsd(balanceMicroUsd)} USD on the balance`,
    ]);
  },
});
