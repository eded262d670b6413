import { OutcomeUnknownError, ServiceError } from '../../client/errors.ts';
import type { PendingPurchase } from '../../client/index.ts';
import { formatUsd } from '../../lib/money.ts';
import { UsageError } from '../usage-error.ts';
import { assertCanPay, paid } from './can-pay.ts';
import { capsLine } from './caps.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { CommandError } from './failure.ts';
import { interruption } from './interrupt.ts';
import { KeptPurchases } from './kept-purchases.ts';
import { type Caller, openCaller } from './open-caller.ts';
import type { Output } from './output.ts';
import { withProgress } from './progress.ts';
import { resumePurchase } from './resume-purchase.ts';
import { readUsd } from './usd.ts';

/** `speechgate deposit AMOUNT` */
await runCommand({
  usage: `speechgate deposit AMOUNT
Puts USDC of the wallet onto its prepaid balance, from which say --pay prepaid is paid. It is not paid back.
Where the end of an earlier deposit is not known, it asks for that instead, and signs nothing new.

  AMOUNT           US dollars, such as 1.00`,
  example: 'speechgate deposit 1.00',
  options: COMMON_OPTIONS,
  maxWords: 1,
  run: async (_values, [word], output) => {
    if (word === undefined) throw new UsageError('AMOUNT is missing, such as 1.00.');
    const amountMicroUsd = readUsd(word, 'AMOUNT');
    const caller = await openCaller({ pay: 'prepaid' });
    assertCanPay(caller);
    const kept = new KeptPurchases(caller.settings.folder);
    const earlier = await finishEarlier(caller, kept, output);
    if (earlier) return output.done(earlier.document, [earlier.line, 'Nothing else was signed or deposited.']);
    output.note(`${capsLine(caller.caps)} They count what is spent from the balance, not the deposit.`);
    const deposit = await depositKept(caller, kept, amountMicroUsd, output);
    const { creditedMicroUsd, balanceMicroUsd } = deposit;
    output.done(deposit, [
      `${formatUsd(creditedMicroUsd)} USD deposited, ${formatUsd(balanceMicroUsd)} USD on the balance`,
    ]);
  },
});

/** Deposits, and keeps the deposit from before it leaves until its end is known. */
async function depositKept(caller: Caller, kept: KeptPurchases, amountMicroUsd: bigint, output: Output) {
  let left: PendingPurchase | undefined;
  const onPending = async (pending: PendingPurchase) => {
    left = pending;
    await kept.keep({ pending, out: null });
  };
  const depositing = caller.client.deposit(amountMicroUsd, { signal: interruption(), onPending });
  const drop = async () => {
    if (left) await kept.drop(left.identifier);
  };
  try {
    const deposit = await withProgress('Waiting until it is on the chain', output.isJson, paid(caller, depositing));
    await drop();
    return deposit;
  } catch (error) {
    if (error instanceof ServiceError || error instanceof CommandError) await drop();
    throw error;
  }
}

/** The end of an earlier deposit at this service; undefined where there is none, or it was not charged. */
async function finishEarlier(
  caller: Caller,
  kept: KeptPurchases,
  output: Output,
): Promise<{ readonly document: object; readonly line: string } | undefined> {
  const { budget, baseUrl, settings } = caller;
  for (const each of await kept.list()) {
    if (each.pending.kind !== 'deposit' || each.pending.baseUrl !== baseUrl) continue;
    const asking = resumePurchase(each, { folder: settings.folder, budget, out: undefined });
    const what = `Asking about the earlier deposit ${each.pending.identifier}`;
    const { line, ...document } = await withProgress(what, output.isJson, asking);
    if (document.outcome === 'unknown') throw new OutcomeUnknownError(each.pending);
    if (document.outcome === 'bought') return { document: { ...document, earlier: true }, line };
    output.note(line);
  }
  return undefined;
}
