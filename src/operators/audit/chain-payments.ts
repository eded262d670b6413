import type { ExpressionBuilder } from 'kysely';
import type { DB } from '../../../db/tables.ts';
import type { Asset } from '../../config/network.ts';
import type { Database } from '../../db/database.ts';
import { secondsAgo, unixSeconds } from '../../db/expressions.ts';
import { eachOf } from '../../lib/each-of.ts';
import type { Chain, TransferClaim } from '../../payments/x402/chain.ts';
import type { Hex } from '../../payments/x402/envelope.ts';
import { auditOutside, type Comparison, type OutsideAudit, type Progress, pagesById } from './outside.ts';

const SETTLED_IS_TRANSFERRED =
  'each settled payment names a transaction on the chain that transfers its amount from its payer to its payee';
const UNSETTLED_IS_UNUSED = 'no refused or failed payment was paid on the chain';
const DOUBT_ENDS = 'no payment has an unclear outcome long after its authorization expired';
export const PAYMENT_RULES = [SETTLED_IS_TRANSFERRED, UNSETTLED_IS_UNUSED, DOUBT_ENDS];

/** After `validBefore`: an hour until the chain is final, and an hour for reconcilers that were off. */
const MAX_DOUBT_SECONDS = 7_200;

const CONCURRENCY = 8;
const BATCH = 500;

type Row = Awaited<ReturnType<typeof paymentsAfter>>[number];

const IN_PROGRESS = ['settling', 'unknown'];

/**
 * Compares every ended or overdue payment and deposit with the chain. The place in the block is not compared, because a
 * reorganisation may move it. The node must still have the receipts.
 */
export function auditPayments(db: Database, chain: Chain, asset: Asset, progress: Progress): Promise<OutsideAudit> {
  return auditOutside(PAYMENT_RULES, progress, async (comparison) => {
    let elsewhere = 0;
    for await (const batch of pagesById((after) => paymentsAfter(db, after))) {
      await eachOf(batch, CONCURRENCY, async (row) => {
        if (row.network !== asset.network || row.asset !== asset.address.toLowerCase()) {
          elsewhere++;
          return;
        }
        await (row.state === 'settled'
          ? compareSettled(chain, row, comparison)
          : compareUnsettled(chain, row, comparison));
        if (row.is_overdue) {
          comparison.add(DOUBT_ENDS, shown(row, (await findOf(chain, row)).outcome));
        }
        comparison.count(1);
      });
    }
    if (elsewhere === 0) return [];
    return [
      `Payments that use another network or asset than ${asset.network} ${asset.address} were not compared: ${elsewhere}. To compare them, set X402_NETWORK and X402_ASSET to theirs.`,
    ];
  });
}

async function compareSettled(chain: Chain, row: Row, { add }: Comparison): Promise<void> {
  const proof = await chain.prove(claimOf(row), row.transaction_hash as Hex);
  const faults: string[] = [];
  if (!proof) faults.push('the transaction on the chain does not contain the transfer of this payment');
  if (transactionIn(row.receipt) !== row.transaction_hash) faults.push('the stored receipt names another transaction');
  if (faults.length > 0) add(SETTLED_IS_TRANSFERRED, shown(row, faults.join(', ')));
}

async function compareUnsettled(chain: Chain, row: Row, { add }: Comparison): Promise<void> {
  const claim = claimOf(row);
  if (IN_PROGRESS.includes(row.state) || !(await chain.isSpent(claim))) return;
  const found = await findOf(chain, row);
  if (found.outcome === 'unused') return;
  const how =
    found.outcome === 'paid'
      ? `paid by ${found.proof.transaction}`
      : 'the authorization was used, but its transaction was not found';
  add(UNSETTLED_IS_UNUSED, shown(row, how));
}

const findOf = (chain: Chain, row: Row) => chain.find(claimOf(row), row.head_block, row.awaited_transaction);

const claimOf = (row: Row): TransferClaim => ({
  payer: row.payer,
  nonce: row.nonce,
  payTo: row.pay_to,
  amount: row.amount_micro_usd,
  validBefore: row.valid_before,
});

const shown = ({ id, state, purpose, payer, amount_micro_usd, transaction_hash }: Row, chain: string) => ({
  payment: id,
  state,
  purpose,
  payer,
  amount: amount_micro_usd,
  transaction: transaction_hash,
  chain,
});

function transactionIn(receipt: string | null): string | undefined {
  try {
    return String(JSON.parse(Buffer.from(receipt ?? '', 'base64').toString()).transaction).toLowerCase();
  } catch {
    return undefined;
  }
}

const isOverdue = (eb: ExpressionBuilder<DB, 'x402_payment'>) =>
  eb.and([
    eb('state', 'in', ['settling', 'unknown', 'refused']),
    eb(unixSeconds(secondsAgo(MAX_DOUBT_SECONDS)), '>', eb.cast<number>('valid_before', 'double precision')),
  ]);

const paymentsAfter = (db: Database, after: string) =>
  db
    .selectFrom('x402_payment')
    .select(['id', 'state', 'purpose', 'network', 'asset', 'payer', 'nonce', 'pay_to', 'amount_micro_usd'])
    .select(['valid_before', 'head_block', 'transaction_hash', 'awaited_transaction', 'receipt'])
    .select((eb) => isOverdue(eb).as('is_overdue'))
    .where((eb) => eb.or([eb('state', 'in', ['settled', 'refused', 'failed']), isOverdue(eb)]))
    .where('id', '>', after)
    .orderBy('id')
    .limit(BATCH)
    .$narrowType<{ payer: Hex; nonce: Hex; pay_to: Hex; transaction_hash: Hex | null }>()
    .execute();

export async function hasPayments(db: Database): Promise<boolean> {
  const payments = db.selectFrom('x402_payment').where('state', '<>', 'reserved').limit(1);
  return (await payments.executeTakeFirst()) !== undefined;
}
