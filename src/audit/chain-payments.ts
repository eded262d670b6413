import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { eachOf } from '../lib/each-of.ts';
import type { Chain, TransferClaim } from '../x402/chain.ts';
import type { Hex } from '../x402/envelope.ts';
import type { Asset } from '../x402/network.ts';
import { RpcError } from '../x402/rpc.ts';
import { Findings, type OutsideAudit, type Progress } from './outside.ts';

const SETTLED_IS_TRANSFERRED = 'a settled payment is the exact transfer on the chain that its row names';
const UNSETTLED_IS_UNUSED = 'a payment that was refused or failed has not used its authorization after all';
const DOUBT_ENDS = 'no payment is in doubt for longer than its authorization can leave it so';
export const PAYMENT_RULES = [SETTLED_IS_TRANSFERRED, UNSETTLED_IS_UNUSED, DOUBT_ENDS];

/**
 * Past validBefore, what became of a payment is certain once that is final on the chain: within the hour also at a node
 * that knows no finalized blocks. The other hour is for reconcilers that were off.
 */
const MAX_DOUBT_SECONDS = 7_200;

/** Payments that the node is asked about at a time. */
const CONCURRENCY = 8;
/** Payments that are read at a time. */
const BATCH = 500;

interface Row {
  readonly id: bigint;
  readonly state: string;
  readonly purpose: string;
  readonly network: string;
  readonly asset: string;
  readonly payer: TransferClaim['payer'];
  readonly nonce: Hex;
  readonly pay_to: TransferClaim['payTo'];
  readonly amount_micro_usd: bigint;
  readonly valid_before: bigint;
  readonly head_block: bigint;
  readonly transaction_hash: Hex | null;
  readonly receipt: string | null;
  readonly is_overdue: boolean;
}

/** Their end is still to be found out. */
const IN_PROGRESS = ['settling', 'unknown'];

/**
 * Compares every payment that has ended, or should have, with the chain, deposits among them. A settled one must be the exact transfer
 * that its authorization made, in the transaction that its row names; of others the authorization must not be used for
 * it. The place in the block, which the row names too, is not compared: a reorganisation may move it. Only reads. The node
 * must still have the receipts.
 */
export async function auditPayments(
  db: Database,
  chain: Chain,
  asset: Asset,
  progress: Progress,
): Promise<OutsideAudit> {
  const findings = new Findings(PAYMENT_RULES);
  let compared = 0;
  let elsewhere = 0;
  try {
    for await (const batch of endedPayments(db)) {
      await eachOf(batch, CONCURRENCY, async (row) => {
        if (row.network !== asset.network || row.asset !== asset.address.toLowerCase()) {
          elsewhere++;
          return;
        }
        await (row.state === 'settled' ? compareSettled(row) : compareUnsettled(row));
        if (row.is_overdue)
          findings.add(DOUBT_ENDS, shown(row, (await chain.find(claimOf(row), row.head_block)).outcome));
        compared++;
      });
      progress(compared);
    }
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return { findings: findings.list(), compared, unanswered: [error.message] };
  }
  const unanswered =
    elsewhere > 0
      ? [`${elsewhere} payments are of another network or asset than ${asset.network} ${asset.address}.`]
      : [];
  return { findings: findings.list(), compared, unanswered };

  async function compareSettled(row: Row): Promise<void> {
    const proof = await chain.prove(claimOf(row), row.transaction_hash as Hex);
    const faults: string[] = [];
    if (!proof) faults.push('its transaction does not make this transfer');
    if (transactionIn(row.receipt) !== row.transaction_hash) faults.push('the receipt names another transaction');
    if (faults.length > 0) findings.add(SETTLED_IS_TRANSFERRED, shown(row, faults.join(', ')));
  }

  async function compareUnsettled(row: Row): Promise<void> {
    const claim = claimOf(row);
    if (IN_PROGRESS.includes(row.state) || !(await chain.isSpent(claim))) return;
    const found = await chain.find(claim, row.head_block);
    if (found.outcome === 'unused') return;
    const how =
      found.outcome === 'paid' ? `paid by ${found.proof.transaction}` : 'used, by which transaction is not found';
    findings.add(UNSETTLED_IS_UNUSED, shown(row, how));
  }
}

const claimOf = (row: Row): TransferClaim => ({
  payer: row.payer,
  nonce: row.nonce,
  payTo: row.pay_to,
  amount: row.amount_micro_usd,
  validBefore: row.valid_before,
});

const shown = ({ id, state, purpose, payer, amount_micro_usd, transaction_hash }: Row, chain: string) => ({
  ...{ payment: id, state, purpose, payer, amount: amount_micro_usd, transaction: transaction_hash },
  chain,
});

/** The transaction that a PAYMENT-RESPONSE header names, as callers are told. */
function transactionIn(receipt: string | null): string | undefined {
  try {
    return String(JSON.parse(Buffer.from(receipt ?? '', 'base64').toString()).transaction).toLowerCase();
  } catch {
    return undefined;
  }
}

const IS_OVERDUE = sql`(state in ('settling', 'unknown', 'refused')
  and valid_before < extract(epoch from now()) - ${MAX_DOUBT_SECONDS}::double precision)`;

async function* endedPayments(db: Database): AsyncGenerator<Row[]> {
  for (let after = 0n; ; ) {
    const { rows } = await sql<Row>`
      select id, state, purpose, network, asset, payer, nonce, pay_to, amount_micro_usd, valid_before, head_block,
             transaction_hash, receipt, ${IS_OVERDUE} as is_overdue
      from x402_payment where (state in ('settled', 'refused', 'failed') or ${IS_OVERDUE}) and id > ${after}
      order by id limit ${BATCH}`.execute(db);
    const last = rows.at(-1);
    if (!last) return;
    yield rows;
    after = last.id;
  }
}

/** Whether there are payments to compare. */
export async function hasPayments(db: Database): Promise<boolean> {
  const { rows } = await sql`select from x402_payment where state <> 'reserved' limit 1`.execute(db);
  return rows.length > 0;
}
