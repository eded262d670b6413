import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { contra } from '../ledger/contra.ts';
import type { Period } from './period.ts';

/** Money that came, went or was moved in a period, apart from sales. All amounts are in micro-USD. */
export interface Money {
  readonly bought: bigint;
  readonly refunded: bigint;
  readonly refundsFailed: bigint;
  readonly disputed: bigint;
  readonly disputesWon: bigint;
  /** What accounts paid of their debts. */
  readonly debtsPaid: bigint;
  /** What the operator gave to accounts, less what the operator took. */
  readonly adjusted: bigint;
  readonly deposited: bigint;
  readonly paidDirectly: bigint;
}

/** What the service owed, and was owed, at a moment. All amounts are in micro-USD. */
export interface Liability {
  /** Unspent card credit. */
  readonly cardBalances: bigint;
  /** Unspent prepaid balances. */
  readonly prepaidBalances: bigint;
  /** Held for requests under way; it is in none of the balances. */
  readonly held: bigint;
  /** What accounts owe for refunds and disputes. */
  readonly debts: bigint;
}

export async function moneyOf(db: Database, { from, to }: Period): Promise<Money> {
  const { rows } = await sql<Money>`
    select ${sumOf('top_up')} as bought, ${sumOf('refund')} as refunded, ${sumOf('refund_failed')} as "refundsFailed",
           ${sumOf('dispute')} as disputed, ${sumOf('dispute_won')} as "disputesWon",
           ${sumOf('debt_payment')} as "debtsPaid",
           coalesce(sum(case when debit_account_id = ${contra.cardAdjustments} then amount_micro_usd
                             else -amount_micro_usd end) filter (where kind = 'adjustment'), 0)::bigint as adjusted,
           ${sumOf('deposit')} as deposited, ${sumOf('settlement')} as "paidDirectly"
    from transfer where state = 'posted' and ended_at >= ${from} and ended_at < ${to}
      and kind not in ('charge', 'spend', 'reversal')`.execute(db);
  return rows[0] as Money;
}

const sumOf = (kind: string) => sql`coalesce(sum(amount_micro_usd) filter (where kind = ${kind}), 0)::bigint`;

/** What the balances were at the moment, made of the entries until then. */
export async function liabilityAt(db: Database, at: Date): Promise<Liability> {
  const { rows } = await sql<Liability>`
    with contra as materialized (
      select id from account where kind = 'contra'
    ), movement as (
      select credit_account_id as account_id, amount_micro_usd as amount from transfer
      where state = 'posted' and ended_at < ${at} and credit_account_id not in (select id from contra)
      union all
      select debit_account_id, -amount_micro_usd from transfer
      where created_at < ${at} and (state <> 'voided' or ended_at >= ${at})
        and debit_account_id not in (select id from contra)
    ), total as (
      select kind, sum(amount)::bigint as amount
      from movement join account on account.id = movement.account_id group by kind
    )
    select coalesce((select amount from total where kind = 'card'), 0) as "cardBalances",
           coalesce((select amount from total where kind = 'wallet'), 0) as "prepaidBalances",
           coalesce((select sum(amount_micro_usd)::bigint from transfer
                     where created_at < ${at} and kind in ('charge', 'spend')
                       and (state = 'pending' or ended_at >= ${at})), 0) as held,
           coalesce((select -amount from total where kind = 'debt'), 0) as debts`.execute(db);
  return rows[0] as Liability;
}
