import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';
import { testPoint } from '../lib/test-point.ts';
import type { SpokenBy } from './paid-for.ts';

/**
 * A pending transfer: its amount has left the user's balance, and exactly one of capture and void ends it.
 *
 *     (none) -- place --> pending -- captureHold --> posted
 *                         pending -- voidHold, or the lease passes --> voided
 *
 * On a card account placeCardHolds places it (card-holds.ts), on a wallet placeWalletHolds, which spends the nonce with
 * it (wallet-holds.ts): several in one statement.
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

/** A hold that is to be captured, and who spoke what it pays for, as far as that is known. */
export interface Captured extends HeldBy {
  readonly upstream?: SpokenBy | undefined;
}

/**
 * Takes over the hold of each row, for a statement that takes over what the hold belongs to.
 * @param owner names rows with `hold_id`, and the new `fence`
 */
export const fenceHold = (owner: Fragment): Fragment => fragment`
  update transfer set fence = ${owner}.fence from ${owner}
  where transfer.id = ${owner}.hold_id and transfer.state = 'pending'
  returning transfer.amount_micro_usd, transfer.model as model_id`;

/** What a hold takes from its account, or took, in micro-USD. */
export async function holdAmount(db: Database, id: bigint): Promise<bigint> {
  const { amount_micro_usd: amount } = await db
    .selectFrom('transfer')
    .select('amount_micro_usd')
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return amount;
}

/** Those of earlier releases don't tell how long their lease is; none is longer than a day. */
export const HOLD_LEASE_HAS_ENDED = sql<boolean>`lease_has_ended(lease_until, coalesce(lease_seconds, 86400))`;

/** Makes the lease last so long from now, by the database's clock. False when the hold has ended or was taken over. */
export async function renewHold(db: Database, { id, fence }: HeldBy, leaseSeconds: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    update transfer set lease_until = now() + make_interval(secs => ${leaseSeconds}::double precision),
                        lease_seconds = ${leaseSeconds}::real
    where id = ${id} and fence = ${fence} and state = 'pending'`.execute(db);
  return numAffectedRows === 1n;
}

/**
 * Posts holds: their amounts are earned. Tells of each whether it is posted now; false means that it was voided or taken
 * over, or that its process counts as dead, and what was made for it must not be delivered. A process that has stood still
 * may place a hold when it was taken for dead, swept and forgotten: nobody would give that charge back. Safe to repeat
 * after a lost answer.
 */
export async function captureHolds(db: Database, holds: readonly Captured[]): Promise<boolean[]> {
  const ids = holds.map(({ id }) => id);
  const fences = holds.map(({ fence }) => fence);
  const captured = await statement<{ id: bigint }>`
    update transfer set state = 'posted', ended_at = now(), upstream = held.upstream, cost_pico_usd = held.cost_pico_usd
    from unnest(${ids}::bigint[], ${fences}::integer[], ${holds.map(({ upstream }) => upstream?.name)}::text[],
                ${holds.map(({ upstream }) => upstream?.costPicoUsd)}::bigint[])
      as held (id, fence, upstream, cost_pico_usd)
    where transfer.id = held.id and transfer.fence = held.fence and state = 'pending'
      and (process_id is null or exists (select from gateway_process where id = process_id and not is_dead))
    returning transfer.id`.execute(db);
  testPoint('hold captured');
  const posted = new Set(captured.rows.map(({ id }) => id));
  return Promise.all(holds.map((hold) => posted.has(hold.id) || isPosted(db, hold)));
}

/** Posts one hold, as `captureHolds` does. */
export async function captureHold(db: Database, hold: Captured): Promise<boolean> {
  return (await captureHolds(db, [hold]))[0] === true;
}

/** A capture's snapshot is older than an earlier capture that it has waited for; this one's is not. */
async function isPosted(db: Database, { id, fence }: HeldBy): Promise<boolean> {
  const { rows } = await sql`
    select id from transfer where id = ${id} and fence = ${fence} and state = 'posted'`.execute(db);
  return rows.length > 0;
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

/**
 * Voids every hold whose lease has ended: its process died or lost the database. Tells how many there were.
 * @param leaseSeconds what holds of this process have: those that lie no further ahead are left out by the index
 */
export async function voidExpiredHolds(db: Database, leaseSeconds = 0): Promise<number> {
  const ended = (range: RawBuilder<unknown>) => sql`array(
    select id from transfer where state = 'pending' and lease_until ${range} and ${HOLD_LEASE_HAS_ENDED}
    order by lease_until limit 1000 for update skip locked)`;
  const ahead = sql`> now() + make_interval(secs => ${leaseSeconds}::double precision)`;
  const { rows } = await sql<{ voided: bigint }>`
    with voided as (
      update transfer set state = 'voided', ended_at = now()
      where id = any(${ended(sql`< now()`)} || ${ended(ahead)}) and state = 'pending'
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
