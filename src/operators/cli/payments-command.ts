import type { Asset } from '../../config/network.ts';
import type { Database } from '../../db/database.ts';
import { JSON_OPTION } from '../../lib/arguments.ts';
import { eachOf } from '../../lib/each-of.ts';
import { printableJson, printableLine } from '../../lib/printable.ts';
import { UsageError } from '../../lib/usage-error.ts';
import type { Chain } from '../../payments/x402/chain.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { type ChainEvidence, findEvidence, type ListedPayment, listPayments, type Which } from '../audit/payments.ts';
import { type CommandContext, defineCommand } from './command.ts';
import { commandSettings, withDatabase } from './command-settings.ts';
import { formatAge, readSince } from './since.ts';
import { readWholeConfig } from './whole-config.ts';

const USAGE = `speechgate payments
Lists payments in USDC that are in doubt, and asks the chain about them.
  --all            lists every payment
  --since TIME     lists payments since a day, a time such as 2026-11-01T09:00:00Z, or an age: 90min, 36h, 7d
  --no-chain       does not ask the chain
  --json           prints a JSON array`;
const EXIT_UNANSWERED = 2;
const CONCURRENCY = 8;
const HEADS = ['id', 'at', 'age', 'state', 'purpose', 'micro-USD', 'payer', 'transaction', 'chain'];
const COLUMNS = [8, 24, 8, 9, 8, 12, 42, 66];

interface Chosen {
  readonly which: Which;
  readonly json: boolean;
  readonly asksChain: boolean;
}

interface AskedChain {
  readonly chain: Chain;
  readonly asset: Asset;
}

export const paymentsCommand = defineCommand({
  usage: USAGE,
  options: {
    all: { type: 'boolean', default: false },
    since: { type: 'string' },
    'no-chain': { type: 'boolean', default: false },
    ...JSON_OPTION,
  },
  run: async ({ all, since, 'no-chain': noChain, json }, _words, context) => {
    const chosen = { which: readWhich(all, since), json, asksChain: !noChain };
    const settings = await commandSettings(context);
    const { x402 } = readWholeConfig(settings, 'list payments');
    return withDatabase(context, { settings, subject: 'The payments', maxConnections: 2 }, async (db) => {
      const opened = x402?.rpcUrls && chosen.asksChain ? openPayments(db, x402.asset, x402.rpcUrls) : undefined;
      try {
        return await list(context, db, chosen, opened && x402 && { chain: opened.chain, asset: x402.asset });
      } finally {
        await opened?.chain.close();
      }
    });
  },
});

async function list(
  { console }: CommandContext,
  db: Database,
  { which, json, asksChain }: Chosen,
  asked: AskedChain | undefined,
): Promise<number> {
  let count = 0;
  let unanswered = 0;
  for await (const batch of listPayments(db, which)) {
    const evidence = new Map<string, ChainEvidence>();
    await eachOf(
      batch.filter(({ isInDoubt }) => isInDoubt && asksChain),
      CONCURRENCY,
      async (payment) => {
        evidence.set(payment.id, await ask(payment, asked));
      },
    );
    for (const payment of batch) {
      const shown = evidence.get(payment.id);
      if (shown?.outcome === 'unanswered') unanswered += 1;
      if (json) console.log(`${count === 0 ? '[' : ','}${printableJson(jsonOf(payment, shown))}`);
      else {
        if (count === 0) console.log(line(HEADS));
        console.log(lineOf(payment, shown));
      }
      count += 1;
    }
  }
  if (json) console.log(count === 0 ? '[]' : ']');
  else if (count === 0) console.log(which === 'in doubt' ? 'No payment is in doubt.' : 'There is no such payment.');
  return unanswered > 0 ? EXIT_UNANSWERED : 0;
}

async function ask(payment: ListedPayment, asked: AskedChain | undefined): Promise<ChainEvidence> {
  const { network, asset } = payment;
  if (!asked) return { outcome: 'unanswered', reason: 'X402_PAY_TO or X402_RPC_URL is unset' };
  if (network !== asked.asset.network || asset !== asked.asset.address.toLowerCase())
    return { outcome: 'unanswered', reason: `the settings name another asset or network than ${asset} on ${network}` };
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
    ...[String(id), createdAt.toISOString(), formatAge(ageSeconds), state, purpose, String(claim.amount), claim.payer],
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
      return 'not paid: the authorization was used for something else, or cancelled';
    case 'used':
      return 'the authorization was used; its transaction is not known yet';
    case 'expired':
      return 'not paid: the authorization expired unused';
    case 'expiring':
      return `not used; it expired at ${validBefore}, which is not final on the chain yet`;
    case 'usable':
      return `not used yet; it expires at ${validBefore}`;
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
  if (!since || all) throw new UsageError(USAGE);
  return { since };
}
