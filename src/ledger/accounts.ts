import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { isUuid } from '../lib/uuid.ts';
import { isOfMode } from './database-identity.ts';

export interface CardAccount {
  readonly id: string;
  readonly balanceMicroUsd: bigint;
  /** Nothing can be spent until the operator unfreezes it. */
  readonly isFrozen: boolean;
}

/** Any text that can't be an account id is an unknown account (R57). */
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
