-- all wallet balances together equal deposits minus pending and posted spends
with totals as (
  select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'wallet') as balances,
         (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'deposit' and state = 'posted')
           as deposits,
         (select coalesce(sum(amount_micro_usd), 0) from transfer where kind = 'spend' and state <> 'voided')
           as spends
)
select * from totals where balances <> deposits - spends;
