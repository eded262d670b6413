import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';
import { contra } from './contra.ts';
import type { Hold } from './hold.ts';
import type { PaidFor } from './paid-for.ts';
import { type Entry, insertTransfer } from './transfer.ts';

/** The longest lifetime of a signature (R30): held against the database's clock here, told by x402/prepaid-terms.ts. */
export const SIGNATURE_LIFETIME_SECONDS = 120;
/** How far the client's clock may be ahead of the database's (R30). */
const CLOCK_LEEWAY_SECONDS = 5;
const MAX_EXPIRY_SECONDS = SIGNATURE_LIFETIME_SECONDS + CLOCK_LEEWAY_SECONDS;

/** A signed permission to spend from a wallet's balance, as far as the ledger is concerned. */
export interface Spend {
  /** In lower case. */
  readonly address: string;
  readonly nonce: string;
  /** Unix seconds. */
  readonly expiry: bigint;
  readonly amountMicroUsd: bigint;
  /** False when the amount is more than the signature permits: nothing is spent then. */
  readonly isPermitted: boolean;
}

export type SpendResult =
  | { readonly outcome: 'held'; readonly hold: Hold }
  /** It is past or too far ahead by the database's clock (R34). */
  | { readonly outcome: 'expiry' }
  /** The wallet never deposited. */
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'replayed' | 'insufficient_funds'; readonly balanceMicroUsd: bigint };

/**
 * Holds the amount on a wallet's balance and consumes the nonce, in one statement: the account's row is locked, the
 * nonce goes in when the balance suffices, and the debit is made where the nonce went in. So nonce and debit exist
 * together or not at all, and a balance that is too small burns no nonce (R32). It is the locked balance that is
 * lowered: that of the statement's snapshot may be older, and too small.
 * @param leaseSeconds how long the hold stands when nobody ends it, by the database's clock
 * @param paidFor what the amount is the price of; the service always tells it
 * @param processId of the process that delivers what the hold pays for
 */
export async function placeWalletHold(
  db: Database,
  spend: Spend,
  leaseSeconds: number,
  paidFor?: PaidFor,
  processId: number | null = null,
): Promise<SpendResult> {
  const { address, nonce, expiry, amountMicroUsd, isPermitted } = spend;
  const entry: Entry = {
    kind: 'spend',
    debit: fragment`id`,
    credit: contra.prepaidRevenue,
    amount: amountMicroUsd,
    reference: nonce,
    traceId: paidFor?.traceId ?? null,
    hold: { leaseSeconds, paidFor, processId },
  };
  const { rows } = await statement<{
    in_time: boolean;
    id: string | null;
    balance: bigint;
    affordable: boolean;
    remaining: bigint | null;
    hold_id: bigint;
    fence: number;
  }>`
    with present as materialized (
      select ${inTime(expiry)} as in_time
    ), payer as materialized (
      select id, balance_micro_usd as balance, ${isPermitted}::boolean and balance_micro_usd >= ${amountMicroUsd} as affordable
      from account, present where address = ${address} and in_time
      for update of account
    ), nonce as (
      insert into prepaid_nonce (account_id, nonce) select id, ${nonce} from payer where affordable
      on conflict do nothing
      returning account_id
    ), debit as (
      update account set balance_micro_usd = payer.balance - ${amountMicroUsd}
      from nonce, payer where account.id = nonce.account_id and account.id = payer.id
      returning account.id, account.balance_micro_usd
    ), hold as (
      ${insertTransfer(entry, fragment`debit`)}
      returning id, fence
    )
    select in_time, payer.id, payer.balance, payer.affordable,
           debit.balance_micro_usd as remaining, hold.id as hold_id, hold.fence
    from present left join payer on true left join debit on true left join hold on true`.execute(db);
  const row = rows[0];
  if (!row?.in_time) return { outcome: 'expiry' };
  if (row.id === null) return { outcome: 'unknown_account' };
  if (row.remaining !== null) {
    const hold = { id: row.hold_id, fence: row.fence, accountId: row.id };
    return { outcome: 'held', hold: { ...hold, amountMicroUsd, balanceMicroUsd: row.remaining } };
  }
  if (row.affordable) return { outcome: 'replayed', balanceMicroUsd: row.balance };
  // The statement's snapshot may be older than the spend that emptied the balance; this one is not.
  const { isSpent, balanceMicroUsd } = await readNonce(db, row.id, nonce);
  return { outcome: isSpent ? 'replayed' : 'insufficient_funds', balanceMicroUsd };
}

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

async function readNonce(db: Database, accountId: string, nonce: string) {
  const { rows } = await sql<{ balance: bigint; spent: boolean }>`
    select balance_micro_usd as balance,
           exists (select from prepaid_nonce where account_id = ${accountId} and nonce = ${nonce}) as spent
    from account where id = ${accountId}`.execute(db);
  return { isSpent: rows[0]?.spent ?? false, balanceMicroUsd: rows[0]?.balance ?? 0n };
}

const inTime = (expiry: bigint): Fragment => fragment`
  ${expiry}::bigint > extract(epoch from clock_timestamp())
  and ${expiry}::bigint <= extract(epoch from clock_timestamp()) + ${MAX_EXPIRY_SECONDS}::int`;
