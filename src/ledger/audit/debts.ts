import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

/** What the processor took back of purchases, and what is owed for it (R61). All amounts are in micro-USD. */
export const debtInvariants: readonly Invariant[] = [
  {
    rule: 'each refund and dispute is booked once for each time that it was taken or returned, whole',
    breaches: sql`
      with turn as (
        select clawback.*, case when number = 1 then id else id || ':' || number end as reference,
               number < turns or state = 'returned' as is_returned
        from clawback cross join lateral generate_series(1, turns) number
      ), expected as (
        select kind, reference, id, account_id, amount_cents::bigint * 10000 as amount from turn
        union all
        select case kind when 'refund' then 'refund_failed' else 'dispute_won' end, reference, id, account_id,
               amount_cents::bigint * 10000
        from turn where is_returned
      ), booked as (
        select transfer.kind, transfer.reference, count(*) as times, min(amount_micro_usd) as amount,
               min(coalesce(debt.owner_id, credit_account_id)::text)::uuid as account_id
        from transfer left join account debt on debt.id = debit_account_id
        where transfer.kind in ('refund', 'refund_failed', 'dispute', 'dispute_won')
        group by transfer.kind, transfer.reference
      )
      select coalesce(expected.kind, booked.kind) as kind, coalesce(expected.reference, booked.reference) as reference,
             coalesce(expected.account_id, booked.account_id) as account, expected.amount as expected,
             booked.amount as booked, coalesce(times, 0) as times
      from expected full join booked using (kind, reference)
      where times is distinct from 1
         or (expected.amount, expected.account_id) is distinct from (booked.amount, booked.account_id)`,
  },
  {
    rule: 'a refund or dispute is one of a credited purchase, and of its account',
    breaches: sql`
      select clawback.id, clawback.account_id as account, top_up.account_id as purchase_of, top_up.state
      from clawback left join top_up on top_up.id = clawback.top_up_id
      where top_up.state is distinct from 'credited' or top_up.account_id <> clawback.account_id`,
  },
  {
    rule: 'what a refund or dispute took is known, or an operator decided about it, with its id in the reason',
    breaches: sql`
      select id, account_id as account, kind, status, amount_cents as amount, currency, state
      from clawback
      where (currency <> 'usd' or not is_status_known)
        and not exists (select from operator_action
                        where subject = account_id::text and strpos(reason, clawback.id) > 0)`,
  },
  {
    rule: 'an account is marked as indebted if and only if it owes something',
    breaches: sql`
      select coalesce(owner.id, debt.owner_id) as account, owner.is_indebted, debt.balance_micro_usd as debt
      from (select * from account where kind = 'card') owner
      full join (select * from account where kind = 'debt') debt on debt.owner_id = owner.id
      where owner.id is null or owner.is_indebted <> (coalesce(debt.balance_micro_usd, 0) > 0)`,
  },
  {
    rule: 'a debt is paid by the account that owes it',
    breaches: sql`
      select transfer.id, debit_account_id as payer, debt.owner_id as debtor
      from transfer join account debt on debt.id = credit_account_id
      where transfer.kind = 'debt_payment' and debt.owner_id is distinct from debit_account_id`,
  },
];
