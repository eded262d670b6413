import type { Asset } from '../../config/network.ts';
import type { Database } from '../../db/database.ts';
import { endWith, JSON_OPTION, readArguments } from '../../lib/arguments.ts';
import { eachOf } from '../../lib/each-of.ts';
import { printableJson, printableLine } from '../../lib/printable.ts';
import type { Chain } from '../../payments/x402/chain.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { type ChainEvidence, findEvidence, type ListedPayment, listPayments, type Which } from '../audit/payments.ts';
import { commandSettings, readWholeConfig, withDatabase } from './command-settings.ts';
import { formatAge, readSince } from './since.ts';

const USAGE = `speechgate payments
Lists payments in USDC that are in doubt, and asks the chain about them.
  --all            lists every payment
  --since TIME     lists payments since a day, a time such as 2026-11-01T09:00:00Z, or an age: 90min, 36h, 7d
  --no-chain       does not ask the chain
  --json           prints a JSON array`;
const EXIT_UNANSWERED = 2;
const CONCURRENCY = 8;
const COLUMNS = [8, 24, 8, 9, 8, 12, 42, 66];

const { values } = readArguments({
  usage: USAGE,
  options: {
    all: { type: 'boolean', default: false },
    since: { type: 'string' },
    'no-chain': { type: 'boolean', default: false },
    ...JSON_OPTION,
  },
});
const which = readWhich();
const settings = await commandSettings();
const { x402 } = readWholeConfig(settings, 'list payments');

// The reader of the output may exit early, as `head` does.
process.stdout.on('error', () => process.exit());

await withDatabase({ settings, subject: 'The payments', maxConnections: 2 }, async (db) => {
  const opened = x402?.rpcUrls && !values['no-chain'] ? openPayments(db, x402.asset, x402.rpcUrls) : undefined;
  try {
    await print(db, opened && x402 && { chain: opened.chain, asset: x402.asset });
  } finally {
    await opened?.chain.close();
  }
});

async function print(db: Database, asked: { chain: Chain; asset: Asset } | undefined): Promise<void> {
  let count = 0;
  let unanswered = 0;
  for await (const batch of listPayments(db, which)) {
    const evidence = new Map<string, ChainEvidence>();
    await eachOf(
      batch.filter(({ isInDoubt }) => isInDoubt && !values['no-chain']),
      CONCURRENCY,
      async (payment) => {
        evidence.set(payment.id, await ask(payment, asked));
      },
    );
    for (const payment of batch) {
      const shown = evidence.get(payment.id);
      if (shown?.outcome === 'unanswered') unanswered += 1;
      if (values.json) console.log(`${count === 0 ? '[' : ','}${printableJson(jsonOf(payment, shown))}`);
      else {
        if (count === 0)
          console.log(line(['id', 'at', 'age', 'state', 'purpose', 'micro-USD', 'payer', 'transaction', 'chain']));
        console.log(lineOf(payment, shown));
      }
      count += 1;
    }
  }
  if (values.json) console.log(count === 0 ? '[]' : ']');
  else if (count === 0) console.log(which === 'in doubt' ? 'No payment is in doubt.' : 'There is no such payment.');
  if (unanswered > 0) process.exitCode = EXIT_UNANSWERED;
}

async function ask(
  { network, asset, claim, headBlock }: ListedPayment,
  asked: { chain: Chain; asset: Asset } | undefined,
): Promise<ChainEvidence> {
  if (!asked) return { outcome: 'unanswered', reason: 'X402_PAY_TO or X402_RPC_URL is unset' };
  if (network !== asked.asset.network || asset !== asked.asset.address.toLowerCase())
    return { outcome: 'unanswered', reason: `the settings name another asset or network than ${asset} on ${network}` };
  return findEvidence(asked.chain, claim, headBlock);
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

function readWhich(): Which {
  if (values.since === undefined) return values.all ? 'all' : 'in doubt';
  const since = readSince(values.since, new Date());
  if (!since || values.all) endWith(USAGE);
  return { since };
}
