import { sql } from 'kysely';
import type { Asset } from '../../config/network.ts';
import type { Database } from '../../db/database.ts';
import { asynchronousCommit, now, statementName, unnest } from '../../db/expressions.ts';
import { compiledOnce } from '../../db/hot-statements.ts';
import { BOOKED_COLUMNS, bookPayment } from '../../ledger/transfer.ts';
import { checksumAddress } from '../../lib/keccak.ts';
import { encodeHeader } from './challenge.ts';
import type { Payment } from './payment.ts';

type SettlementProof = { readonly transaction: string; readonly logIndex: number };

export interface Booking {
  readonly receipt: string;
  readonly isNew: boolean;
}

export interface SettledPayment {
  readonly id: string;
  readonly proof: SettlementProof;
  readonly receipt: string;
}

export const paymentReceipt = ({ network }: Asset, payer: string, transaction: string): string =>
  encodeHeader({ success: true, transaction, network, payer: checksumAddress(payer) });

export const transactionOf = (receipt: string): string =>
  JSON.parse(Buffer.from(receipt, 'base64').toString()).transaction;

export const failureReceipt = ({ network, claim }: Payment, reason: string): string =>
  encodeHeader({ success: false, errorReason: reason, transaction: '', network, payer: checksumAddress(claim.payer) });

const unlessDeposits = sql`case when bool_and(purpose = 'speech') over () then ${asynchronousCommit} end`;

/**
 * Settles and books payments; deposits (R35) must be of different payers. Undefined if the state forbids it. Repeatable.
 * Without deposits the commit does not wait for the disk: the chain shows a settlement that is lost (R25).
 */
export async function bookSettlements(
  db: Database,
  payments: readonly SettledPayment[],
): Promise<(Booking | undefined)[]> {
  const rows = await bookAll(db, {
    ids: payments.map(({ id }) => id),
    transactions: payments.map(({ proof }) => proof.transaction),
    logIndexes: payments.map(({ proof }) => proof.logIndex),
    receipts: payments.map(({ receipt }) => receipt),
  });
  const receipts = new Map(rows.map(({ id, receipt }) => [id, receipt]));
  return Promise.all(
    payments.map(async ({ id }) => {
      const receipt = receipts.get(id);
      return receipt == null ? findBooking(db, id) : { receipt, isNew: true };
    }),
  );
}

interface SettledValues {
  readonly ids: readonly string[];
  readonly transactions: readonly string[];
  readonly logIndexes: readonly number[];
  readonly receipts: readonly string[];
}

const bookAll = compiledOnce((db, { ids, transactions, logIndexes, receipts }: SettledValues) => {
  const settled = unnest('settled', {
    id: ['uuid', ids],
    transaction: ['text', transactions],
    log_index: ['integer', logIndexes],
    receipt: ['text', receipts],
  });
  const settle = db.with('payment', (qb) =>
    qb
      .updateTable('x402_payment')
      .from(settled)
      .set((eb) => ({
        state: 'settled',
        settled_at: now,
        lease_until: null,
        refusal: null,
        failed_at: null,
        next_look_at: null,
        transaction_hash: eb.ref('settled.transaction'),
        log_index: eb.ref('settled.log_index'),
        receipt: eb.ref('settled.receipt'),
      }))
      .whereRef('x402_payment.id', '=', 'settled.id')
      .where('state', 'in', ['settling', 'refused', 'unknown', 'failed'])
      .returning(BOOKED_COLUMNS),
  );
  return bookPayment(settle)
    .selectFrom('payment')
    .select(['id', 'receipt', unlessDeposits.as('commit')])
    .modifyEnd(statementName('book_settlement'));
});

export async function bookSettlement(db: Database, id: string, proof: SettlementProof, receipt: string) {
  return (await bookSettlements(db, [{ id, proof, receipt }]))[0];
}

/** A booking that waited for an earlier one has an older snapshot than that; this query has a newer one. */
async function findBooking(db: Database, id: string): Promise<Booking | undefined> {
  const payment = db.selectFrom('x402_payment').select('receipt').where('id', '=', id);
  const row = await payment.where('state', '=', 'settled').executeTakeFirst();
  return row && { receipt: row.receipt ?? '', isNew: false };
}
