import type { Address } from 'viem';
import { readUsd, UsageError } from '../../lib/arguments.ts';
import { isLoopback } from '../../lib/loopback.ts';
import { formatUsd } from '../../lib/money.ts';
import { OutcomeUnknownError, type PendingPurchase, ServiceError, SpeechgateError } from '../client/index.ts';
import { stillCharged } from '../client/money-text.ts';
import { defineCommand, interruption } from './command.ts';
import { CommandError } from './failure.ts';
import { assertCanPay, type Caller, paid, withCaller } from './open-caller.ts';
import type { CommandProcess, Output } from './output.ts';
import { flowWord, maskedAccount, readFlow } from './read-values.ts';
import { resumePurchase } from './resume-command.ts';
import { SentPurchase } from './saved-purchases.ts';
import { capsLine, readSettings } from './settings.ts';

/** Public nodes without a key. */
const NODES: Readonly<Record<string, string>> = {
  'eip155:8453': 'https://mainnet.base.org',
  'eip155:84532': 'https://sepolia.base.org',
};

export const balanceCommand = defineCommand({
  usage: `speechgate balance [--pay FLOW]
Shows the balance of the credit account, or the wallet's prepaid balance, and with x402 also the wallet's own USDC.

  --pay FLOW       card, x402 or prepaid; default: as set by speechgate connect`,
  example: 'speechgate balance',
  options: { pay: { type: 'string' } },
  run: async ({ pay }, { output, host }) => {
    const { flow } = await readSettings(host.env, pay === undefined ? undefined : readFlow(pay, '--pay'));
    // With direct payment the service has no balance but the prepaid one.
    await withCaller(host, { pay: flow === 'direct' ? 'prepaid' : flow }, async (caller) => {
      assertCanPay(caller);
      const balance = await output.withProgress('Reading the balance', caller.client.balance());
      const { balanceMicroUsd } = balance;
      const account = flow === 'card' ? maskedAccount(balance.account) : balance.account;
      const description = flow === 'card' ? 'credit account' : 'prepaid balance of';
      const line = `${formatUsd(balanceMicroUsd)} USD (${description} ${account})`;
      if (flow !== 'direct') return output.done({ flow, account, balanceMicroUsd }, [line]);
      const own = await output.withProgress('Reading the chain', readUsdc(caller, account as Address));
      output.done({ flow, account, balanceMicroUsd: own, prepaidMicroUsd: balanceMicroUsd }, [
        `${formatUsd(own)} USDC in the wallet ${account}`,
        line,
      ]);
    });
  },
});

/** In micro-USDC. */
async function readUsdc({ client, settings }: Caller, wallet: Address): Promise<bigint> {
  const { network, asset } = (await client.metadata()).payment;
  // A service on this machine may have a chain of its own with the id of Base.
  const node = settings.node ?? (isLoopback(new URL(settings.baseUrl).hostname) ? undefined : NODES[network]);
  if (!node) {
    throw new UsageError(
      `To read the wallet's USDC, speechgate needs a node of the network ${network}. Set SPEECHGATE_RPC_URL to its URL.`,
    );
  }
  const { createPublicClient, erc20Abi, http } = await import('viem');
  const chain = createPublicClient({ transport: http(node) });
  const call = { abi: erc20Abi, functionName: 'balanceOf', args: [wallet] } as const;
  return chain.readContract({ address: asset.address as Address, ...call }).catch((cause) => {
    const fix = 'Retry, or set SPEECHGATE_RPC_URL to another node.';
    throw new SpeechgateError(`The node ${new URL(node).host} did not return the wallet's balance. ${fix}`, { cause });
  });
}

export const accountCommand = defineCommand({
  usage: `speechgate account [--show]
Shows the credit account of this service. Anyone who has its id can spend its credit.

  --show           prints the whole id`,
  example: 'speechgate account --show',
  options: { show: { type: 'boolean', default: false } },
  run: async ({ show }, { output, host }) => {
    await withCaller(host, { pay: 'card' }, async (caller) => {
      assertCanPay(caller);
      const { account = '', baseUrl } = caller.settings;
      const shown = show ? account : maskedAccount(account);
      output.done({ url: baseUrl, account: shown }, [show ? shown : `${shown} (--show prints the whole id)`]);
    });
  },
});

export const budgetCommand = defineCommand({
  usage: `speechgate budget
Shows what say, bridge and mcp spent on this machine, what is reserved for purchases that may still be charged, and how
much of the caps is left.
Set the caps with speechgate connect --max-per-call, --max-per-day and --max-total.
`,
  example: 'speechgate budget',
  run: async (_values, { output, host }) => {
    await withCaller(host, {}, async ({ budget, settings: { flow, caps } }) => {
      const state = await budget.read(flow);
      const { spentTodayMicroUsd, spentMicroUsd, reservedMicroUsd, reservedUntil, leftMicroUsd } = state;
      const { perCallMicroUsd, perDayMicroUsd, totalMicroUsd } = caps;
      const usd = (amount: bigint) => `${formatUsd(amount)} USD`;
      const of = (cap: bigint | undefined) => (cap === undefined ? '' : ` of ${usd(cap)}`);
      output.done({ ...state, caps }, [
        `spent today     ${usd(spentTodayMicroUsd)}${of(perDayMicroUsd)}`,
        `spent in total  ${usd(spentMicroUsd)}${of(totalMicroUsd)}`,
        `reserved        ${usd(reservedMicroUsd)}${reservedMicroUsd > 0n ? ` (for purchases that ${stillCharged(reservedUntil)}; see speechgate resume)` : ''}`,
        `unconfirmed     ${usd(state.unconfirmedTodayMicroUsd)}${of(perDayMicroUsd)} today, ${usd(state.unconfirmedMicroUsd)}${of(totalMicroUsd)} in total (signed payments that the service reports as not charged)`,
        `left            ${leftMicroUsd === null ? 'no limit' : `${usd(leftMicroUsd)} can still be spent by ${flowWord(flow)}`}`,
        `per call        ${perCallMicroUsd === undefined ? 'no limit' : `at most ${usd(perCallMicroUsd)}`}`,
      ]);
    });
  },
});

export const depositCommand = defineCommand({
  usage: `speechgate deposit AMOUNT
Moves USDC of the wallet to its prepaid balance, which say --pay prepaid spends. A deposit is not refundable.
If the outcome of an earlier deposit is unknown, this resumes it and signs nothing new.

  AMOUNT           US dollars, such as 1.00`,
  example: 'speechgate deposit 1.00',
  maxWords: 1,
  run: async (_values, { words: [word], output, host }) => {
    if (word === undefined)
      throw new UsageError('AMOUNT is missing. Give an amount in US dollars, such as 1.00. Nothing was signed.');
    const amountMicroUsd = readUsd(word, 'AMOUNT');
    await withCaller(host, { pay: 'prepaid' }, async (caller) => {
      assertCanPay(caller);
      const previous = await resumePreviousDeposit(caller, output, host);
      if (previous) {
        const line = 'No new deposit was made. To make one, run the same command again.';
        return output.done(previous.document, [previous.line, line]);
      }
      const { minDepositMicroUsd, maxDepositMicroUsd } = (await caller.client.metadata()).prepaid;
      if (amountMicroUsd < minDepositMicroUsd || amountMicroUsd > maxDepositMicroUsd) {
        const [least, most] = [minDepositMicroUsd, maxDepositMicroUsd].map((limit) => formatUsd(BigInt(limit)));
        throw new UsageError(`AMOUNT must be from ${least} to ${most} USD, not ${word}. Nothing was signed.`);
      }
      output.note(`${capsLine(caller.caps)} Caps limit what you spend from the balance, not the deposit.`);
      const deposit = await depositAndSave(caller, amountMicroUsd, output, host);
      const balance = formatUsd(deposit.balanceMicroUsd);
      // A repeated request reports 0 as credited.
      output.done(deposit, [`${formatUsd(amountMicroUsd)} USD deposited; the prepaid balance is ${balance} USD`]);
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
