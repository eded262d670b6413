-- each refund and dispute is booked in full, once for each time that money was taken or returned
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
   or (expected.amount, expected.account_id) is distinct from (booked.amount, booked.account_id);
