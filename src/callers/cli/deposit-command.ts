import { readUsd } from '../../lib/arguments.ts';
import { formatUsd } from '../../lib/money.ts';
import { UsageError } from '../../lib/usage-error.ts';
import { OutcomeUnknownError, type PendingPurchase, ServiceError } from '../client/index.ts';
import { defineCommand, interruption } from './command.ts';
import { CommandError } from './failure.ts';
import { assertCanPay, type Caller, paid, withCaller } from './open-caller.ts';
import type { CommandProcess, Output } from './output.ts';
import { resumePurchase } from './resume-command.ts';
import { SentPurchase } from './saved-purchases.ts';
import { capsLine } from './settings.ts';

export const depositCommand = defineCommand({
  usage: `speechgate deposit AMOUNT
Moves USDC of the wallet to its prepaid balance, which say --pay prepaid spends. A deposit is not refundable.
If the outcome of an earlier deposit is unknown, this resumes it and signs nothing new.

  AMOUNT           US dollars, such as 1.00`,
  example: 'speechgate deposit 1.00',
  maxWords: 1,
  run: async (_values, { words: [word], output, host }) => {
    if (word === undefined) throw new UsageError('AMOUNT is missing. Name US dollars, such as 1.00.');
    const amountMicroUsd = readUsd(word, 'AMOUNT');
    await withCaller(host, { pay: 'prepaid' }, async (caller) => {
      assertCanPay(caller);
      const previous = await resumePreviousDeposit(caller, output, host);
      if (previous) return output.done(previous.document, [previous.line, 'No new deposit was made.']);
      const { minDepositMicroUsd, maxDepositMicroUsd } = (await caller.client.metadata()).prepaid;
      if (amountMicroUsd < minDepositMicroUsd || amountMicroUsd > maxDepositMicroUsd) {
        const [least, most] = [minDepositMicroUsd, maxDepositMicroUsd].map((limit) => formatUsd(BigInt(limit)));
        throw new UsageError(`AMOUNT must be from ${least} to ${most} USD, not ${word}. Nothing was signed.`);
      }
      output.note(`${capsLine(caller.caps)} Caps limit spending from the balance, not the deposit.`);
      const deposit = await depositAndSave(caller, amountMicroUsd, output, host);
      const { creditedMicroUsd, balanceMicroUsd } = deposit;
      output.done(deposit, [
        `${formatUsd(creditedMicroUsd)} USD deposited, ${formatUsd(balanceMicroUsd)} USD on the balance`,
      ]);
    });
  },
});

async function depositAndSave(
  { client, saved, settings }: Caller,
  amountMicroUsd: bigint,
  output: Output,
  host: CommandProcess,
) {
  const sent = new SentPurchase(saved);
  const onPending = (pending: PendingPurchase) => sent.save(pending);
  const depositing = client.deposit(amountMicroUsd, { signal: interruption(host), onPending });
  try {
    const deposit = await output.withProgress('Waiting for the transfer on chain', paid(depositing, settings));
    await sent.drop();
    return deposit;
  } catch (error) {
    if (error instanceof ServiceError || error instanceof CommandError) await sent.drop();
    throw error;
  }
}

/** Undefined if there is no earlier deposit, or it was not charged. */
async function resumePreviousDeposit({ budget, saved, settings }: Caller, output: Output, host: CommandProcess) {
  for (const purchase of await saved.list()) {
    if (purchase.pending.kind !== 'deposit' || purchase.pending.baseUrl !== settings.baseUrl) continue;
    const resuming = resumePurchase(purchase, budget, host);
    const progress = `Resuming the earlier deposit ${purchase.pending.identifier}`;
    const { line, ...document } = await output.withProgress(progress, resuming);
    if (document.outcome === 'unknown') throw new OutcomeUnknownError(purchase.pending);
    if (document.outcome === 'bought') return { document: { ...document, earlier: true }, line };
    output.note(line);
  }
  return undefined;
}
