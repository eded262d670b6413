import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';

/** The longest lifetime of a signature (R30): held against the database's clock here, told by x402/prepaid-terms.ts. */
export const SIGNATURE_LIFETIME_SECONDS = 120;
/** How far the client's clock may be ahead of the database's (R30). */
const CLOCK_LEEWAY_SECONDS = 5;
/** For how long a signature can be shown after it was made. */
export const MAX_EXPIRY_SECONDS = SIGNATURE_LIFETIME_SECONDS + CLOCK_LEEWAY_SECONDS;

/** What a balance read finds; the nonce is not looked at (R31). */
export type WalletReading =
  | { readonly outcome: 'expiry' }
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'read'; readonly balanceMicroUsd: bigint };

/** Reads a wallet's balance, and holds the expiry against the database's clock (R34). @param address in lower case */
export async function readWallet(db: Database, address: string, expiry: bigint): Promise<WalletReading> {
  const { rows } = await statement<{ in_time: boolean; balance: bigint | null }>`
    select in_time, balance_micro_usd as balance
    from (select ${inTime(expiry)} as in_time) present left join account on address = ${address}`.execute(db);
  const row = rows[0];
  if (!row?.in_time) return { outcome: 'expiry' };
  return row.balance === null ? { outcome: 'unknown_account' } : { outcome: 'read', balanceMicroUsd: row.balance };
}

/** Tells whether the expiry is neither past nor too far ahead by the database's clock (R30, R34). */
export async function isInTime(db: Database, expiry: bigint): Promise<boolean> {
  const { rows } = await statement<{ in_time: boolean }>`select ${inTime(expiry)} as in_time`.execute(db);
  return rows[0]?.in_time ?? false;
}

/** The balance of a wallet; undefined when it never deposited. @param address in lower case */
export async function findWallet(db: Database, address: string): Promise<bigint | undefined> {
  const row = await db
    .selectFrom('account')
    .select('balance_micro_usd')
    .where('address', '=', address)
    .executeTakeFirst();
  return row?.balance_micro_usd ?? undefined;
}

/** For how long a spent nonce is known at least (R34). */
export const NONCE_RETENTION_HOURS = 24;

/**
 * Whether a nonce that was spent with this expiry is still known: a signature is shown at most MAX_EXPIRY_SECONDS before
 * it expires. False: nobody can tell any more whether it was spent.
 */
export async function isNonceKept(db: Database, expiry: bigint): Promise<boolean> {
  const { rows } = await statement<{ kept: boolean }>`
    select ${expiry}::bigint - ${MAX_EXPIRY_SECONDS}::int > extract(epoch from clock_timestamp())
           - ${NONCE_RETENTION_HOURS * 3600}::int as kept`.execute(db);
  return rows[0]?.kept ?? false;
}

/** Nonces that one pruning deletes at most, so that it stays short. */
const PRUNED_NONCES = 1000;

/**
 * Forgets nonces whose retention is over, a bounded number of them; their signatures expired long ago. Tells how many.
 * They are deleted by where they are, which the lock keeps: a nonce never changes.
 */
export async function pruneNonces(db: Database): Promise<number> {
  const { numAffectedRows } = await sql`
    delete from prepaid_nonce where ctid = any(array(
      select ctid from prepaid_nonce
      where spent_at < (select clock_timestamp() - make_interval(hours => ${NONCE_RETENTION_HOURS + 1}::int))
      order by spent_at limit ${PRUNED_NONCES} for update skip locked
    ))`.execute(db);
  return Number(numAffectedRows ?? 0n);
}

/** Whether a signature's expiry, in Unix seconds, is neither past nor too far ahead by the database's clock (R30, R34). */
export const inTime = (expiry: bigint | Fragment): Fragment => fragment`
  ${expiry}::bigint > extract(epoch from clock_timestamp())
  and ${expiry}::bigint <= extract(epoch from clock_timestamp()) + ${MAX_EXPIRY_SECONDS}::int`;
