import { type Selection, sql } from 'kysely';
import type { DB } from '../../../db/tables.ts';
import type { Asset } from '../../config/network.ts';
import type { Address } from '../../config/payees.ts';
import type { Database } from '../../db/database.ts';
import { leaseHasEnded, secondsAgo } from '../../db/expressions.ts';
import { LEASE_SECONDS } from '../../db/lease.ts';
import type { TransferClaim } from './chain.ts';
import type { Hex } from './envelope.ts';

export type PaymentState = 'reserved' | 'settling' | 'settled' | 'refused' | 'unknown' | 'failed';

export type PaymentPurpose = 'speech' | 'deposit';

export interface Payment {
  readonly id: string;
  readonly state: PaymentState;
  readonly purpose: PaymentPurpose;
  readonly requestHash: Buffer;
  readonly traceId: string | null;
  readonly fence: number;
  readonly network: Asset['network'];
  readonly claim: TransferClaim;
  readonly headBlock: bigint;
  readonly refusal: string | null;
  readonly receipt: string | null;
  readonly awaitedTransaction: string | null;
  readonly isLeased: boolean;
  readonly isReplayable: boolean;
}

/** For so long a settled request gets its audio and receipt again (R22). */
export const REPLAY_WINDOW_SECONDS = 86_400;

/** No process works on the payment any more (R26). */
export const LEASE_HAS_ENDED = leaseHasEnded(LEASE_SECONDS);

export const PAYMENT_COLUMNS = [
  'id',
  'state',
  'request_hash',
  'trace_id',
  'fence',
  'network',
  'payer',
  'nonce',
  'pay_to',
  'amount_micro_usd',
  'valid_before',
  'head_block',
  'refusal',
  'receipt',
  'purpose',
  'awaited_transaction',
  sql<boolean>`coalesce(not ${LEASE_HAS_ENDED}, false)`.as('is_leased'),
  sql<boolean>`coalesce(settled_at > ${secondsAgo(REPLAY_WINDOW_SECONDS)}, false)`.as('is_replayable'),
] as const;

type PaymentRow = Selection<DB, 'x402_payment', (typeof PAYMENT_COLUMNS)[number]>;

export const toPayment = (row: PaymentRow): Payment => ({
  id: row.id,
  state: row.state as PaymentState,
  requestHash: row.request_hash,
  traceId: row.trace_id,
  fence: row.fence,
  network: row.network as Asset['network'],
  claim: {
    payer: row.payer as Address,
    nonce: row.nonce as Hex,
    payTo: row.pay_to as Address,
    amount: row.amount_micro_usd,
    validBefore: row.valid_before,
  },
  headBlock: row.head_block,
  refusal: row.refusal,
  receipt: row.receipt,
  purpose: row.purpose as PaymentPurpose,
  awaitedTransaction: row.awaited_transaction,
  isLeased: row.is_leased,
  isReplayable: row.is_replayable,
});

export async function findByIdentifier(db: Database, identifier: string): Promise<Payment | undefined> {
  const payments = db.selectFrom('x402_payment').select(PAYMENT_COLUMNS);
  const row = await payments.where('identifier', '=', identifier).executeTakeFirst();
  return row && toPayment(row);
}

/** Finds the payment of an authorization, whatever its identifier (R22). */
export async function findByAuthorization(
  db: Database,
  { network, address }: Asset,
  { payer, nonce }: Pick<TransferClaim, 'payer' | 'nonce'>,
): Promise<Payment | undefined> {
  const row = await db
    .selectFrom('x402_payment')
    .select(PAYMENT_COLUMNS)
    .where('network', '=', network)
    .where('asset', '=', address.toLowerCase())
    .where('payer', '=', payer)
    .where('nonce', '=', nonce)
    .executeTakeFirst();
  return row && toPayment(row);
}
