-- the balance of each account is the sum of its transfers
with contra as materialized (
  select id from account where kind = 'contra'
), movement as (
  select credit_account_id as account_id, amount_micro_usd as amount from transfer
  where state = 'posted' and credit_account_id not in (select id from contra)
  union all
  select debit_account_id, -amount_micro_usd from transfer
  where state <> 'voided' and debit_account_id not in (select id from contra)
), expected as (
  select account_id, sum(amount) as amount from movement group by account_id
)
select account.id, account.kind, account.balance_micro_usd as balance, coalesce(expected.amount, 0) as transfers
from account left join expected on expected.account_id = account.id
where account.kind <> 'contra' and account.balance_micro_usd
      <> coalesce(expected.amount, 0) * case when account.kind = 'debt' then -1 else 1 end;
