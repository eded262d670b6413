import type { Database } from '../db/database.ts';
import { fragment, type Statement, statement } from '../db/statement.ts';
import type { TransferClaim } from './chain.ts';
import type { Hex } from './envelope.ts';
import type { Asset } from './network.ts';
import type { Address } from './payees.ts';

export type PaymentState = 'reserved' | 'settling' | 'settled' | 'refused' | 'unknown' | 'failed';

/** What a payment is for. */
export type PaymentPurpose = 'speech' | 'deposit';

/** A recorded payment by an on-chain authorization; db/migrations/0005_x402.sql has the states. */
export interface Payment {
  readonly id: bigint;
  readonly state: PaymentState;
  readonly purpose: PaymentPurpose;
  readonly requestHash: Buffer;
  /** Of the request that made it; null of releases that kept none. */
  readonly traceId: string | null;
  readonly fence: number;
  readonly network: Asset['network'];
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  readonly refusal: string | null;
  readonly receipt: string | null;
  /** The transaction whose depth is waited for. */
  readonly awaitedTransaction: string | null;
  /** A process is at it. */
  readonly isLeased: boolean;
  /** It was settled, and its replay window is not over. */
  readonly isReplayable: boolean;
}

/** For how long the exact repetition of a paid request gets the same answer (specification, "Limits"). */
export const REPLAY_WINDOW_SECONDS = 86_400;

/** What a statement returns as PAYMENT_COLUMNS. */
export interface PaymentRow {
  id: bigint;
  state: PaymentState;
  request_hash: Buffer;
  trace_id: string | null;
  fence: number;
  network: Asset['network'];
  payer: Address;
  nonce: Hex;
  pay_to: Address;
  amount_micro_usd: bigint;
  valid_before: bigint;
  head_block: bigint;
  refusal: string | null;
  receipt: string | null;
  purpose: PaymentPurpose;
  awaited_transaction: string | null;
  is_leased: boolean;
  is_replayable: boolean;
}

/** How long a payment is its process's own without a sign of life (R26). */
export const LEASE_SECONDS = 6;

export const LEASE_HAS_ENDED = fragment`lease_has_ended(lease_until, ${LEASE_SECONDS}::double precision)`;

/** What a statement of x402_payment returns for `readPayments`. */
export const PAYMENT_COLUMNS = fragment`
  id, state, request_hash, trace_id, fence, network, payer, nonce, pay_to, amount_micro_usd, valid_before, head_block, refusal, receipt,
  purpose, awaited_transaction,
  coalesce(not ${LEASE_HAS_ENDED}, false) as is_leased,
  coalesce(settled_at > now() - make_interval(secs => ${REPLAY_WINDOW_SECONDS}::double precision), false) as is_replayable`;

/** The payment of a row that was returned as PAYMENT_COLUMNS. */
export const toPayment = (row: PaymentRow): Payment => ({
  id: row.id,
  state: row.state,
  requestHash: row.request_hash,
  traceId: row.trace_id,
  fence: row.fence,
  network: row.network,
  claim: {
    payer: row.payer,
    nonce: row.nonce,
    payTo: row.pay_to,
    amount: row.amount_micro_usd,
    validBefore: row.valid_before,
  },
  headBlock: row.head_block,
  refusal: row.refusal,
  receipt: row.receipt,
  purpose: row.purpose,
  awaitedTransaction: row.awaited_transaction,
  isLeased: row.is_leased,
  isReplayable: row.is_replayable,
});

/** The payments that a statement returns as PAYMENT_COLUMNS. */
export async function readPayments(db: Database, query: Statement<PaymentRow>): Promise<Payment[]> {
  const { rows } = await query.execute(db);
  return rows.map(toPayment);
}

/** Likewise, of a statement that returns one at most. */
export async function readPayment(db: Database, query: Statement<PaymentRow>): Promise<Payment | undefined> {
  return (await readPayments(db, query))[0];
}

/** The payment under an identifier, of whatever request, network and asset. */
export const findByIdentifier = (db: Database, identifier: string): Promise<Payment | undefined> =>
  readPayment(db, statement`select ${PAYMENT_COLUMNS} from x402_payment where identifier = ${identifier}`);

/** The payment with an authorization, under whatever identifier (R22). */
export const findByAuthorization = (
  db: Database,
  { network, address }: Asset,
  { payer, nonce }: Pick<TransferClaim, 'payer' | 'nonce'>,
): Promise<Payment | undefined> =>
  readPayment(
    db,
    statement`
      select ${PAYMENT_COLUMNS} from x402_payment
      where network = ${network} and asset = ${address.toLowerCase()} and payer = ${payer} and nonce = ${nonce}`,
  );
