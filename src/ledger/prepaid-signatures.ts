import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { secondsAgo } from '../db/expressions.ts';

// How long the signature of a prepaid request is valid, and what an earlier request with its nonce has spent.

/** The longest lifetime of a signature (R30). */
export const SIGNATURE_LIFETIME_SECONDS = 120;
/** How far a client's clock may be ahead of the database's (R30). */
const CLOCK_LEEWAY_SECONDS = 5;
export const MAX_EXPIRY_SECONDS = SIGNATURE_LIFETIME_SECONDS + CLOCK_LEEWAY_SECONDS;

/** Condition: the expiry, in Unix seconds, is neither past nor too far ahead by the database's clock (R30, R34). */
export const inTime = (expiry: Expression<unknown>): RawBuilder<SqlBool> => sql`
  ${expiry}::bigint > extract(epoch from clock_timestamp())
  and ${expiry}::bigint <= extract(epoch from clock_timestamp()) + ${MAX_EXPIRY_SECONDS}::int`;

/** Whether an expiry, in Unix seconds, is acceptable by the database's clock (R30, R34). */
export async function isInTime(db: Database, expiry: bigint): Promise<boolean> {
  const { isInTime } = await db.selectNoFrom(inTime(sql.val(expiry)).as('isInTime')).executeTakeFirstOrThrow();
  return isInTime === true;
}

/** How long a spent nonce is kept at least (R34). */
export const NONCE_RETENTION_HOURS = 24;

/**
 * Whether a nonce with this expiry would still be stored: it was spent at the earliest when its expiry was as far ahead as
 * is allowed. If not, its outcome is unknown, not "not charged".
 */
export async function isNonceKept(db: Database, expiry: bigint): Promise<boolean> {
  const age = sql<SqlBool>`${expiry}::bigint - ${MAX_EXPIRY_SECONDS}::int > extract(epoch from clock_timestamp())
    - ${NONCE_RETENTION_HOURS * 3600}::int`;
  const { isKept } = await db.selectNoFrom(age.as('isKept')).executeTakeFirstOrThrow();
  return isKept === true;
}

export async function isNonceSpent(db: Database, address: string, nonce: string): Promise<boolean> {
  const spent = selectNonce(db, address, nonce).select('prepaid_nonce.nonce');
  return (await spent.executeTakeFirst()) !== undefined;
}

const selectNonce = (db: Database, address: string, nonce: string) =>
  db
    .selectFrom('account')
    .innerJoin('prepaid_nonce', 'prepaid_nonce.account_id', 'account.id')
    .where('address', '=', address)
    .where('prepaid_nonce.nonce', '=', nonce);

const PRUNED_NONCES = 1000;

/** Deletes a batch of nonces after their retention; their signatures expired long ago. Returns the count. */
export async function pruneNonces(db: Database): Promise<number> {
  const age = sql<Date>`(select clock_timestamp() - make_interval(hours => ${NONCE_RETENTION_HOURS + 1}::int))`;
  const old = db
    .selectFrom('prepaid_nonce')
    .select(sql`ctid`.as('ctid'))
    .where('spent_at', '<', age)
    .orderBy('spent_at')
    .limit(PRUNED_NONCES)
    .forUpdate()
    .skipLocked();
  const nonces = db.deleteFrom('prepaid_nonce').where(sql<SqlBool>`ctid = any(array${old})`);
  return Number((await nonces.executeTakeFirst()).numDeletedRows);
}

export type SpendState = 'pending' | 'charged' | 'restored';

export interface PreviousDebit {
  readonly holdId: string;
  readonly amountMicroUsd: bigint;
  readonly balanceMicroUsd: bigint;
  readonly state: SpendState;
}

export async function findAudioEnd(db: Database, id: string, seconds: number): Promise<Date | undefined> {
  const row = await db
    .selectFrom('transfer')
    .select(sql<Date>`ended_at + make_interval(secs => ${seconds}::double precision)`.as('end'))
    .where('id', '=', id)
    .where('kind', '=', 'spend')
    .where('state', '=', 'posted')
    .where('ended_at', '>', secondsAgo(seconds))
    .executeTakeFirst();
  return row?.end;
}

const SPEND_STATES: Readonly<Record<string, SpendState>> = {
  pending: 'pending',
  posted: 'charged',
  voided: 'restored',
};

/** Finds the debit of exactly this request; undefined if its nonce is unspent or another request spent it. */
export async function findSpend(
  db: Database,
  address: string,
  nonce: string,
  digest: Buffer,
): Promise<PreviousDebit | undefined> {
  const debit = await selectNonce(db, address, nonce)
    .innerJoin('transfer', 'transfer.id', 'prepaid_nonce.hold_id')
    .select(['transfer.id', 'amount_micro_usd', 'balance_micro_usd', 'state'])
    .where('request_digest', '=', digest)
    .executeTakeFirst();
  return (
    debit && {
      holdId: debit.id,
      amountMicroUsd: debit.amount_micro_usd,
      balanceMicroUsd: debit.balance_micro_usd ?? 0n,
      state: SPEND_STATES[debit.state] as SpendState,
    }
  );
}
