import type { Asset } from '../../config/network.ts';
import { JSON_OPTION } from '../../lib/arguments.ts';
import { eachOf } from '../../lib/each-of.ts';
import { formatUsd } from '../../lib/money.ts';
import { printableJson, printableLine } from '../../lib/printable.ts';
import type { Chain } from '../../payments/x402/chain.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { type ChainEvidence, findEvidence, type ListedPayment, listPayments } from '../audit/payments.ts';
import {
  type CommandContext,
  commandSettings,
  defineCommand,
  EXIT_UNANSWERED,
  readWholeConfig,
  withDatabase,
} from './command.ts';

const USAGE = `speechgate admin payments
Lists USDC payments without a clear outcome, and looks them up on the chain. Changes nothing: the reconcilers complete these
payments by themselves, or at once with speechgate admin reconcile.
  --json           prints a JSON array`;
const CONCURRENCY = 8;
const HEADS = ['id', 'at', 'age', 'state', 'purpose', 'USD', 'payer', 'transaction', 'chain'];
const COLUMNS = [8, 24, 8, 9, 8, 12, 42, 66];

export const paymentsCommand = defineCommand({
  usage: USAGE,
  options: JSON_OPTION,
  run: async ({ json }, _words, context) => {
    const settings = await commandSettings(context);
    const { x402 } = await readWholeConfig(settings, 'list payments');
    return withDatabase(context, { settings, subject: 'The payments', maxConnections: 2 }, async (db) => {
      const chain = x402?.rpcUrls ? openPayments(db, x402.asset, x402.rpcUrls).chain : undefined;
      const find = (payment: ListedPayment) => ask(payment, chain && x402 && { chain, asset: x402.asset });
      try {
        return await list(context, listPayments(db), find, json);
      } finally {
        await chain?.close();
      }
    });
  },
});

async function list(
  { console }: CommandContext,
  batches: AsyncIterable<ListedPayment[]>,
  find: (payment: ListedPayment) => Promise<ChainEvidence>,
  json: boolean,
): Promise<number> {
  let count = 0;
  let isAnswered = true;
  for await (const batch of batches) {
    const evidence = new Map<string, ChainEvidence>();
    await eachOf(batch, CONCURRENCY, async (payment) => {
      evidence.set(payment.id, await find(payment));
    });
    for (const payment of batch) {
      const shown = evidence.get(payment.id) as ChainEvidence;
      if (shown.outcome === 'unanswered') isAnswered = false;
      if (!json && count === 0) console.log(line(HEADS));
      console.log(json ? `${count === 0 ? '[' : ','}${printableJson(jsonOf(payment, shown))}` : lineOf(payment, shown));
      count += 1;
    }
  }
  if (json) console.log(count === 0 ? '[]' : ']');
  else if (count === 0) console.log('Every payment has a clear outcome. No action is needed.');
  return isAnswered ? 0 : EXIT_UNANSWERED;
}

async function ask(
  payment: ListedPayment,
  asked: { readonly chain: Chain; readonly asset: Asset } | undefined,
): Promise<ChainEvidence> {
  const { network, asset } = payment;
  if (!asked)
    return {
      outcome: 'unanswered',
      reason: 'X402_PAY_TO or X402_RPC_URL is unset. Set both to look payments up on the chain',
    };
  if (network !== asked.asset.network || asset !== asked.asset.address.toLowerCase())
    return {
      outcome: 'unanswered',
      reason: `the payment used the token ${asset} on ${network}. To look it up, set X402_ASSET and X402_NETWORK to these, and X402_RPC_URL to a node of that network`,
    };
  return findEvidence(asked.chain, payment);
}

function line(cells: readonly string[]): string {
  return printableLine(COLUMNS, cells);
}

function lineOf(payment: ListedPayment, evidence: ChainEvidence): string {
  const { id, createdAt, ageSeconds, state, purpose, claim, transaction, refusal } = payment;
  const shown = describe(evidence, payment);
  const why = refusal === null ? '' : `refused: ${refusal}`;
  return line([
    ...[
      String(id),
      createdAt.toISOString(),
      formatAge(ageSeconds),
      state,
      purpose,
      formatUsd(claim.amount),
      claim.payer,
    ],
    ...[transaction ?? '', why ? `${shown}; ${why}` : shown],
  ]);
}

function describe(evidence: ChainEvidence, { claim }: ListedPayment): string {
  const validBefore = timeOf(claim.validBefore);
  switch (evidence.outcome) {
    case 'paid': {
      const { transaction, block, isConfirmed } = evidence;
      return `paid by ${transaction} in block ${block}, ${isConfirmed ? 'confirmed' : 'not confirmed yet'}: a reconciler books it`;
    }
    case 'used_otherwise':
      return 'not paid: the payer used the authorization for another transfer, or cancelled it';
    case 'used':
      return 'not clear yet: the authorization was used, but its transaction was not found. Look again in some minutes';
    case 'expired':
      return 'not paid: the authorization expired before it was used';
    case 'expiring':
      return `not clear yet: the authorization expired unused at ${validBefore}, but blocks after that time are not final yet`;
    case 'usable':
      return `not paid yet: the authorization can be used until ${validBefore}`;
    case 'unanswered':
      return `NOT CHECKED: ${evidence.reason}`;
  }
}

function jsonOf(payment: ListedPayment, chain: ChainEvidence) {
  const { id, createdAt, ageSeconds, state, purpose, claim, transaction, refusal, checkedAt, traceId } = payment;
  return {
    id,
    createdAt,
    ageSeconds: Math.floor(ageSeconds),
    state,
    purpose,
    isInDoubt: true,
    amountMicroUsd: claim.amount,
    payer: claim.payer,
    payTo: claim.payTo,
    validBefore: timeOf(claim.validBefore),
    transaction,
    refusal,
    checkedAt,
    traceId,
    chain,
  };
}

/** A payer may have signed any number of seconds, even one beyond all dates. */
function timeOf(seconds: bigint): string {
  const at = new Date(Number(seconds) * 1000);
  return Number.isNaN(at.getTime()) ? `second ${seconds}` : at.toISOString();
}

const UNITS = { s: 1, min: 60, h: 3_600, d: 86_400 } as const;

function formatAge(seconds: number): string {
  const [unit, size] = Object.entries(UNITS).findLast(([, size]) => seconds >= size) ?? ['s', 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}
