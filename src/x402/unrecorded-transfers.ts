import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { bookPayment } from '../ledger/settled-payment.ts';
import { paymentReceipt } from './book-settlement.ts';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import type { Address, Payee } from './payees.ts';
import { PAYMENT_COLUMNS, type Payment, type PaymentPurpose, readPayments } from './payment.ts';
import type { DatedTransfer } from './received-transfers.ts';

/** A transfer that used an authorization. */
export type AuthorizedTransfer = DatedTransfer & { readonly nonce: Hex };

/** Authorizations that are looked up at a time. */
const BATCH = 500;

/** Every address that was ever paid, as far as settings and database know, in lower case. */
export async function everyPayee(db: Database, payees: readonly Payee[]): Promise<Address[]> {
  const seen = await db.selectFrom('x402_payee').select('address').execute();
  const addresses = [...payees, ...seen].map(({ address }) => address.toLowerCase() as Address);
  return [...new Set(addresses)];
}

const keyOf = ({ payer, nonce }: { readonly payer: Address; readonly nonce: Hex }): string => `${payer} ${nonce}`;

/** The recorded payments by the authorizations that these transfers used, by their transfer. */
export async function paymentsOf(
  db: Database,
  { network, address }: Asset,
  transfers: readonly AuthorizedTransfer[],
): Promise<ReadonlyMap<AuthorizedTransfer, Payment>> {
  const payments = new Map<AuthorizedTransfer, Payment>();
  for (let at = 0; at < transfers.length; at += BATCH) {
    const batch = transfers.slice(at, at + BATCH);
    const found = await readPayments(
      db,
      statement`
      select ${PAYMENT_COLUMNS} from x402_payment
      where network = ${network} and asset = ${address.toLowerCase()} and (payer, nonce) in (
        select * from unnest(${batch.map(({ payer }) => payer)}::text[], ${batch.map(({ nonce }) => nonce)}::text[]))`,
    );
    const byAuthorization = new Map(found.map((payment) => [keyOf(payment.claim), payment]));
    for (const transfer of batch) {
      const payment = byAuthorization.get(keyOf(transfer));
      if (payment) payments.set(transfer, payment);
    }
  }
  return payments;
}

/**
 * Records a settled payment for a transfer that the database has lost the payment of, and books its amount as every
 * settlement is booked, in one statement. False when its authorization is a payment's by then.
 *
 * What is not known of the payment: its identifier, for which its authorization stands (no caller can send one with
 * colons); its request, so that no request is its repetition; when its authorization would have ended, for which the time
 * of its block stands.
 */
export async function recordTransfer(
  db: Database,
  asset: Asset,
  transfer: AuthorizedTransfer,
  purpose: PaymentPurpose,
): Promise<boolean> {
  const { payer, nonce, payTo, amount, transaction, logIndex, block, at } = transfer;
  const receipt = paymentReceipt(asset, payer, transaction);
  const { rows } = await statement`
    with payment as (
      insert into x402_payment (
        state, purpose, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd, valid_before,
        head_block, transaction_hash, log_index, receipt, settling_at, settled_at, audio_deleted_at)
      select 'settled', ${purpose}::text, ${`restored:${payer}:${nonce}`}, ''::bytea, ${asset.network},
             ${asset.address.toLowerCase()}, ${payer}, ${nonce}, ${payTo}, ${amount}::bigint,
             ${BigInt(at.getTime() / 1000)}::bigint, ${block}::bigint, ${transaction}, ${logIndex}::integer, ${receipt},
             now(), now(), now()
      on conflict do nothing
      returning id, purpose, payer, amount_micro_usd, trace_id, model, upstream, cost_pico_usd
    ), ${bookPayment(fragment`payment`)}
    select id from payment`.execute(db);
  return rows.length > 0;
}
