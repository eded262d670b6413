import type { Asset } from '../../config/network.ts';
import type { Address, Payee } from '../../config/payees.ts';
import type { Database } from '../../db/database.ts';
import { now, unnest } from '../../db/expressions.ts';
import { BOOKED_COLUMNS, bookPayment } from '../../ledger/transfer.ts';
import { paymentReceipt } from './book-settlement.ts';
import type { DatedTransfer } from './chain.ts';
import type { Hex } from './envelope.ts';
import { PAYMENT_COLUMNS, type Payment, type PaymentPurpose, toPayment } from './payment.ts';

export type AuthorizedTransfer = DatedTransfer & { readonly nonce: Hex };

const BATCH = 500;

export async function everyPayee(db: Database, payees: readonly Payee[]): Promise<Address[]> {
  const seen = await db.selectFrom('x402_payee').select('address').execute();
  const addresses = [...payees, ...seen].map(({ address }) => address.toLowerCase() as Address);
  return [...new Set(addresses)];
}

const keyOf = ({ payer, nonce }: { readonly payer: Address; readonly nonce: Hex }): string => `${payer} ${nonce}`;

export async function paymentsOf(db: Database, { network, address }: Asset, transfers: readonly AuthorizedTransfer[]) {
  const payments = new Map<AuthorizedTransfer, Payment>();
  for (let at = 0; at < transfers.length; at += BATCH) {
    const batch = transfers.slice(at, at + BATCH);
    const wanted = unnest('wanted', {
      wanted_payer: ['text', batch.map(({ payer }) => payer)],
      wanted_nonce: ['text', batch.map(({ nonce }) => nonce)],
    });
    const rows = await db
      .selectFrom(wanted)
      .innerJoin('x402_payment', (join) =>
        join.onRef('payer', '=', 'wanted_payer').onRef('x402_payment.nonce', '=', 'wanted_nonce'),
      )
      .select(PAYMENT_COLUMNS)
      .where('network', '=', network)
      .where('asset', '=', address.toLowerCase())
      .execute();
    const found = rows.map(toPayment);
    const byAuthorization = new Map(found.map((payment) => [keyOf(payment.claim), payment]));
    for (const transfer of batch) {
      const payment = byAuthorization.get(keyOf(transfer));
      if (payment) payments.set(transfer, payment);
    }
  }
  return payments;
}

/** Books a transfer that the database lacks. No request repeats it: identifiers have no colon, hashes are not empty. */
export async function recordTransfer(
  db: Database,
  asset: Asset,
  transfer: AuthorizedTransfer,
  purpose: PaymentPurpose,
): Promise<boolean> {
  const { payer, nonce, payTo, amount, transaction, logIndex, block, at } = transfer;
  const receipt = paymentReceipt(asset, payer, transaction);
  const record = db.with('payment', (qb) =>
    qb
      .insertInto('x402_payment')
      .values({
        state: 'settled',
        purpose,
        identifier: `restored:${payer}:${nonce}`,
        request_hash: Buffer.alloc(0),
        network: asset.network,
        asset: asset.address.toLowerCase(),
        payer,
        nonce,
        pay_to: payTo,
        amount_micro_usd: amount,
        valid_before: BigInt(at.getTime() / 1000),
        head_block: block,
        transaction_hash: transaction,
        log_index: logIndex,
        receipt,
        settling_at: now,
        settled_at: now,
      })
      .onConflict((oc) => oc.doNothing())
      .returning(BOOKED_COLUMNS),
  );
  const rows = await bookPayment(record).selectFrom('payment').select('id').execute();
  return rows.length > 0;
}
