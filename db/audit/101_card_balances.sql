-- all card balances together equal credits minus charges and debt payments
with totals as (
  select (select coalesce(sum(balance_micro_usd), 0) from account where kind = 'card') as balances,
         coalesce(sum(amount_micro_usd) filter (
           where kind in ('top_up', 'refund_failed', 'dispute_won') and state = 'posted'), 0) as credits,
         coalesce(sum(amount_micro_usd) filter (where kind = 'charge' and state <> 'voided'), 0) as charges,
         coalesce(sum(amount_micro_usd) filter (where kind = 'debt_payment'), 0) as debt_payments,
         coalesce(sum(case debit_account_id
                        -- card_adjustments
                        when '00000000-0000-4000-8000-000000000006' then amount_micro_usd
                        else -amount_micro_usd
                      end) filter (where kind = 'adjustment'), 0) as adjustments
  from transfer
)
select * from totals where balances <> credits - charges - debt_payments + adjustments;
