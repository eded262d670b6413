import { type SqlBool, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { isUuid } from '../lib/uuid.ts';
import { isOfMode } from './database-identity.ts';
import { inTime } from './wallet-holds.ts';

export interface CardAccount {
  readonly id: string;
  readonly balanceMicroUsd: bigint;
  /** Nothing can be spent until the operator unfreezes it. */
  readonly isFrozen: boolean;
}

/** Any text that can't be an account id, however long, is an unknown account (R51, R57). */
export const isAccountId = isUuid;

export const selectCardAccount = (db: Database, id: string, livemode: boolean | null) =>
  db
    .selectFrom('account')
    .select(['id', 'balance_micro_usd', 'frozen_at'])
    .where('id', '=', id)
    .where('kind', '=', 'card')
    .where(isOfMode(livemode));

/** Finds a card account by its bearer id; undefined if there is none (R12, R57). */
export async function findCardAccount(
  db: Database,
  id: string,
  { livemode, lock = false }: { livemode?: boolean | undefined; lock?: boolean } = {},
): Promise<CardAccount | undefined> {
  if (!isAccountId(id)) return undefined;
  const account = selectCardAccount(db, id, livemode ?? null).$if(lock, (qb) => qb.forUpdate());
  const row = await account.executeTakeFirst();
  return row && { id: row.id, balanceMicroUsd: row.balance_micro_usd ?? 0n, isFrozen: row.frozen_at !== null };
}

export async function isOfOtherMode(db: Database, accountId: string, livemode: boolean): Promise<boolean> {
  const account = db.selectFrom('account').select(isOfMode(livemode).as('isOfMode')).where('id', '=', accountId);
  return (await account.executeTakeFirst())?.isOfMode === false;
}

/** The result of a balance read, which ignores the nonce (R31). */
export type WalletReading =
  | { readonly outcome: 'expiry' }
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'read'; readonly balanceMicroUsd: bigint };

/** Reads a wallet's balance and checks the expiry by the database's clock (R34). @param address in lower case */
export async function readWallet(db: Database, address: string, expiry: bigint): Promise<WalletReading> {
  const row = await db
    .selectFrom(sql<{ isInTime: SqlBool }>`(select ${inTime(sql.val(expiry))} as "isInTime")`.as('present'))
    .leftJoin('account', (join) => join.on('address', '=', address))
    .select(['isInTime', 'balance_micro_usd as balance'])
    .executeTakeFirst();
  if (!row?.isInTime) return { outcome: 'expiry' };
  return row.balance === null ? { outcome: 'unknown_account' } : { outcome: 'read', balanceMicroUsd: row.balance };
}

export async function findWallet(db: Database, address: string): Promise<bigint | undefined> {
  const row = await db
    .selectFrom('account')
    .select('balance_micro_usd')
    .where('address', '=', address)
    .executeTakeFirst();
  return row?.balance_micro_usd ?? undefined;
}

export async function findBalance(db: Database, accountId: string): Promise<bigint> {
  const account = db.selectFrom('account').select('balance_micro_usd').where('id', '=', accountId);
  return (await account.executeTakeFirstOrThrow()).balance_micro_usd ?? 0n;
}

const LAST_CHARGES = 20;

/** The last prices that were held from an account, the newest first. `voided` ones were not charged. */
export const lastCharges = (db: Database, accountId: string) =>
  db
    .selectFrom('transfer')
    .select(['created_at as at', 'state', 'amount_micro_usd as amountMicroUsd', 'characters', 'trace_id as traceId'])
    .where('debit_account_id', '=', accountId)
    .where('kind', '=', sql.lit('charge'))
    .orderBy('id', 'desc')
    .limit(LAST_CHARGES)
    .$narrowType<{ state: 'pending' | 'posted' | 'voided' }>()
    .execute();
