import type { Asset } from '../../config/network.ts';
import { JSON_OPTION, UsageError } from '../../lib/arguments.ts';
import { eachOf } from '../../lib/each-of.ts';
import { readMoment } from '../../lib/moment.ts';
import { formatUsd } from '../../lib/money.ts';
import { printableJson, printableLine } from '../../lib/printable.ts';
import type { Chain } from '../../payments/x402/chain.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { type ChainEvidence, findEvidence, type ListedPayment, listPayments, type Which } from '../audit/payments.ts';
import {
  type CommandContext,
  commandSettings,
  defineCommand,
  EXIT_UNANSWERED,
  readWholeConfig,
  withDatabase,
} from './command.ts';

const USAGE = `speechgate admin payments
Lists USDC payments without a clear outcome, and looks them up on the chain.
  --all            lists every payment
  --since TIME     lists payments since a day, a time such as 2026-11-01T09:00:00Z, or an age: 90min, 36h, 7d
  --no-chain       does not ask the chain
  --json           prints a JSON array`;
const CONCURRENCY = 8;
const HEADS = ['id', 'at', 'age', 'state', 'purpose', 'USD', 'payer', 'transaction', 'chain'];
const COLUMNS = [8, 24, 8, 9, 8, 12, 42, 66];

export const paymentsCommand = defineCommand({
  usage: USAGE,
  options: {
    all: { type: 'boolean', default: false },
    since: { type: 'string' },
    'no-chain': { type: 'boolean', default: false },
    ...JSON_OPTION,
  },
  run: async ({ all, since, 'no-chain': noChain, json }, _words, context) => {
    const which = readWhich(all, since);
    const settings = await commandSettings(context);
    const { x402 } = await readWholeConfig(settings, 'list payments');
    return withDatabase(context, { settings, subject: 'The payments', maxConnections: 2 }, async (db) => {
      const chain = x402?.rpcUrls && !noChain ? openPayments(db, x402.asset, x402.rpcUrls).chain : undefined;
      const find = (payment: ListedPayment) => ask(payment, chain && x402 && { chain, asset: x402.asset });
      try {
        return await list(context, listPayments(db, which), { which, json, find: noChain ? undefined : find });
      } finally {
        await chain?.close();
      }
    });
  },
});

interface ListOptions {
  readonly which: Which;
  readonly json: boolean;
  readonly find: ((payment: ListedPayment) => Promise<ChainEvidence>) | undefined;
}

async function list(
  { console }: CommandContext,
  batches: AsyncIterable<ListedPayment[]>,
  { which, json, find }: ListOptions,
): Promise<number> {
  let count = 0;
  let isAnswered = true;
  for await (const batch of batches) {
    const evidence = new Map<string, ChainEvidence>();
    const inDoubt = find ? batch.filter(({ isInDoubt }) => isInDoubt) : [];
    await eachOf(inDoubt, CONCURRENCY, async (payment) => {
      if (find) evidence.set(payment.id, await find(payment));
    });
    for (const payment of batch) {
      const shown = evidence.get(payment.id);
      if (shown?.outcome === 'unanswered') isAnswered = false;
      if (!json && count === 0) console.log(line(HEADS));
      console.log(json ? `${count === 0 ? '[' : ','}${printableJson(jsonOf(payment, shown))}` : lineOf(payment, shown));
      count += 1;
    }
  }
  if (json) console.log(count === 0 ? '[]' : ']');
  else if (count === 0)
    console.log(
      which === 'in doubt'
        ? 'Every payment has a clear outcome. No action is needed.'
        : 'No payment matches these options.',
    );
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
      reason: `the payment used ${asset} on ${network}. To look it up, set X402_ASSET, X402_NETWORK and X402_RPC_URL to these`,
    };
  return findEvidence(asked.chain, payment);
}

function line(cells: readonly string[]): string {
  return printableLine(COLUMNS, cells);
}

function lineOf(payment: ListedPayment, evidence: ChainEvidence | undefined): string {
  const { id, createdAt, ageSeconds, state, purpose, claim, transaction, refusal } = payment;
  const shown = evidence ? describe(evidence, payment) : '';
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
    ...[transaction ?? '', [shown, why].filter(Boolean).join('; ')],
  ]);
}

function describe(evidence: ChainEvidence, { claim }: ListedPayment): string {
  const validBefore = timeOf(claim.validBefore);
  switch (evidence.outcome) {
    case 'paid': {
      const { transaction, block, isConfirmed } = evidence;
      return `paid by ${transaction} in block ${block}, ${isConfirmed ? 'confirmed' : 'not confirmed yet'}`;
    }
    case 'used_otherwise':
      return 'not paid: the payer used the authorization for another transfer, or cancelled it';
    case 'used':
      return 'not clear yet: the authorization was used, but its transaction was not found yet';
    case 'expired':
      return 'not paid: the authorization expired before it was used';
    case 'expiring':
      return `not clear yet: the authorization expired unused at ${validBefore}, but the chain is not final at that time yet`;
    case 'usable':
      return `not paid yet: the authorization can be used until ${validBefore}`;
    case 'unanswered':
      return `NOT CHECKED: ${evidence.reason}`;
  }
}

function jsonOf(payment: ListedPayment, evidence: ChainEvidence | undefined) {
  const { id, createdAt, ageSeconds, state, purpose, claim, transaction, refusal, checkedAt, traceId } = payment;
  return {
    id,
    createdAt,
    ageSeconds: Math.floor(ageSeconds),
    state,
    purpose,
    isInDoubt: payment.isInDoubt,
    amountMicroUsd: claim.amount,
    payer: claim.payer,
    payTo: claim.payTo,
    validBefore: timeOf(claim.validBefore),
    transaction,
    refusal,
    checkedAt,
    traceId,
    chain: evidence ?? null,
  };
}

/** A payer may have signed any number of seconds, even one beyond all dates. */
function timeOf(seconds: bigint): string {
  const at = new Date(Number(seconds) * 1000);
  return Number.isNaN(at.getTime()) ? `second ${seconds}` : at.toISOString();
}

function readWhich(all: boolean, text: string | undefined): Which {
  if (text === undefined) return all ? 'all' : 'in doubt';
  const since = readSince(text, new Date());
  if (all) throw new UsageError('--all conflicts with --since. Use one of them.');
  if (!since) throw new UsageError(`--since is ${text}, but it must be a day, a time or an age such as 7d.`);
  return { since };
}

const UNITS = { s: 1, min: 60, h: 3_600, d: 86_400 } as const;

/** A date and time, or an age such as 36h. Undefined if it is neither. */
export function readSince(text: string, now: Date): Date | undefined {
  const [, count, unit] = /^(\d{1,6})(s|min|h|d)$/.exec(text) ?? [];
  if (count !== undefined) return new Date(now.getTime() - Number(count) * UNITS[unit as keyof typeof UNITS] * 1000);
  return readMoment(text);
}

export function formatAge(seconds: number): string {
  const [unit, size] = Object.entries(UNITS).findLast(([, size]) => seconds >= size) ?? ['s', 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}
