import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';
import { findCardAccount, isAccountId, isCardAccount } from './accounts.ts';
import { contra } from './contra.ts';
import type { PaidFor } from './paid-for.ts';
import { type Entry, insertTransfer } from './transfer.ts';

/**
 * A pending transfer: its amount has left the user's balance, and exactly one of capture and void ends it.
 *
 *     (none) -- place --> pending -- captureHold --> posted
 *                         pending -- voidHold, or the lease passes --> voided
 *
 * On a card account placeCardHold places it, on a wallet placeWalletHold (wallets.ts), which spends the nonce with it.
 * renewHold keeps the lease of a hold from passing whose speech is still being heard.
 *
 * The fence names the hold's present owner. Whoever takes a hold over raises it, and the former owner's capture or void
 * then finds nothing to end.
 */
export interface Hold {
  readonly id: bigint;
  readonly fence: number;
  readonly accountId: string;
  readonly amountMicroUsd: bigint;
  /** What remained in the account once this amount had left it. */
  readonly balanceMicroUsd: bigint;
}

/** What ending a hold takes: which one, and the fence that its owner knows. */
export type HeldBy = Pick<Hold, 'id' | 'fence'>;

export type HoldResult =
  | { readonly outcome: 'held'; readonly hold: Hold }
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'insufficient_funds'; readonly balanceMicroUsd: bigint };

/** What else is known of a charge that is held. */
export interface HoldTerms {
  /** What the amount is the price of; the service always tells it. */
  readonly paidFor?: PaidFor;
  /** Of the process that delivers what the hold pays for; null for a job's. */
  readonly processId?: number | null;
  /** Of the processor's key: an account of the other mode is unknown. Null, or absent, for one of either mode. */
  readonly livemode?: boolean | null | undefined;
}

/**
 * Holds the amount on a card account for a charge. One statement: the account is debited if it can pay, and the hold is
 * written, or nothing is. An update that has waited for another one looks at the row again, so that it is the present
 * balance that suffices and is lowered. Only a hold that is refused costs a second statement, which tells why.
 * @param leaseSeconds how long the hold stands when nobody ends or renews it, by the database's clock; it must
 *   outlast the deadline of a synthesis that isn't renewed. Null for a hold that is owned by a job and has no lease.
 */
export async function placeCardHold(
  db: Database,
  accountId: string,
  amountMicroUsd: bigint,
  leaseSeconds: number | null,
  terms: HoldTerms = {},
): Promise<HoldResult> {
  const { paidFor, processId = null, livemode = null } = terms;
  if (!isAccountId(accountId)) return { outcome: 'unknown_account' };
  const charge: Entry = {
    kind: 'charge',
    debit: fragment`id`,
    credit: contra.cardRevenue,
    amount: amountMicroUsd,
    reference: null,
    traceId: paidFor?.traceId ?? null,
    hold: { leaseSeconds, paidFor, processId },
  };
  const { rows } = await statement<{ id: string; balance: bigint; hold_id: bigint; fence: number }>`
    with debit as (
      update account set balance_micro_usd = balance_micro_usd - ${amountMicroUsd}
      where ${isCardAccount(accountId, livemode)}
        and balance_micro_usd >= ${amountMicroUsd}
      returning id, balance_micro_usd
    ), hold as (
      ${insertTransfer(charge, fragment`debit`)}
      returning id, fence
    )
    select debit.id, debit.balance_micro_usd as balance, hold.id as hold_id, hold.fence from debit, hold`.execute(db);
  const row = rows[0];
  if (row) {
    const { id, balance: balanceMicroUsd, hold_id, fence } = row;
    return { outcome: 'held', hold: { id: hold_id, fence, accountId: id, amountMicroUsd, balanceMicroUsd } };
  }
  const account = await findCardAccount(db, accountId, { livemode: livemode ?? undefined, lock: true });
  if (!account) return { outcome: 'unknown_account' };
  const { balanceMicroUsd } = account;
  if (balanceMicroUsd < amountMicroUsd) return { outcome: 'insufficient_funds', balanceMicroUsd };
  // Money has come in between the two statements.
  return placeCardHold(db, accountId, amountMicroUsd, leaseSeconds, terms);
}

/**
 * Takes over the hold of each row, for a statement that takes over what the hold belongs to.
 * @param owner names rows with `hold_id`, and the new `fence`
 */
export const fenceHold = (owner: Fragment): Fragment => fragment`
  update transfer set fence = ${owner}.fence from ${owner}
  where transfer.id = ${owner}.hold_id and transfer.state = 'pending'
  returning transfer.amount_micro_usd`;

/** Makes the lease last so long from now, by the database's clock. False when the hold has ended or was taken over. */
export async function renewHold(db: Database, { id, fence }: HeldBy, leaseSeconds: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    update transfer set lease_until = now() + make_interval(secs => ${leaseSeconds}::double precision)
    where id = ${id} and fence = ${fence} and state = 'pending'`.execute(db);
  return numAffectedRows === 1n;
}

/**
 * Posts the hold: the amount is earned. Tells whether it is posted now; false means that the hold was voided or taken
 * over, and what was made for it must not be delivered. Safe to repeat after a lost answer.
 */
export async function captureHold(db: Database, { id, fence }: HeldBy): Promise<boolean> {
  const captured = await statement`
    update transfer set state = 'posted', ended_at = now()
    where id = ${id} and fence = ${fence} and state = 'pending'
    returning id`.execute(db);
  if (captured.rows.length > 0) return true;
  // The statement's snapshot is older than an earlier capture that it has waited for; this one is not.
  const posted = await sql`
    select id from transfer where id = ${id} and fence = ${fence} and state = 'posted'`.execute(db);
  return posted.rows.length > 0;
}

/**
 * Voids the hold: the amount returns to the account, once. Tells the balance after that, or undefined when the hold had
 * ended before.
 */
export async function voidHold(db: Database, hold: HeldBy): Promise<bigint | undefined> {
  const { rows } = await sql<{ balance: bigint }>`
    with voided as (
      update transfer set state = 'voided', ended_at = now()
      where id = ${hold.id} and fence = ${hold.fence} and state = 'pending'
      returning debit_account_id, amount_micro_usd
    )
    update account set balance_micro_usd = balance_micro_usd + voided.amount_micro_usd
    from voided where account.id = voided.debit_account_id
    returning balance_micro_usd as balance`.execute(db);
  return rows[0]?.balance;
}

/** Voids every hold whose lease has passed: its process died or lost the database. Tells how many there were. */
export async function voidExpiredHolds(db: Database): Promise<number> {
  const { rows } = await sql<{ voided: bigint }>`
    with voided as (
      update transfer set state = 'voided', ended_at = now()
      where id = any(array(
        select id from transfer where state = 'pending' and lease_until < now()
        order by lease_until limit 1000 for update skip locked
      )) and state = 'pending'
      returning debit_account_id, amount_micro_usd
    ), refund as (
      select debit_account_id, sum(amount_micro_usd)::bigint as amount from voided group by debit_account_id
    ), refunded as (
      update account set balance_micro_usd = balance_micro_usd + refund.amount
      from refund where account.id = refund.debit_account_id
    )
    select count(*) as voided from voided`.execute(db);
  return Number(rows[0]?.voided ?? 0n);
}
