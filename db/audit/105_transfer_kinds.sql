-- each transfer is between accounts that its kind allows
select transfer.id, transfer.kind, debit.kind as debit, credit.kind as credit from transfer
join account debit on debit.id = transfer.debit_account_id
join account credit on credit.id = transfer.credit_account_id
where not exists (
  select from (
    values ('top_up', 'card_clearing', 'card'), ('charge', 'card', 'card_revenue'),
           ('settlement', 'usdc_clearing', 'usdc_revenue'),
           ('deposit', 'usdc_clearing', 'wallet'), ('spend', 'wallet', 'prepaid_revenue'),
           ('refund', 'debt', 'card_clearing'), ('refund_failed', 'card_clearing', 'card'),
           ('dispute', 'debt', 'card_clearing'), ('dispute_won', 'card_clearing', 'card'),
           ('debt_payment', 'card', 'debt'),
           ('adjustment', 'card_adjustments', 'card'), ('adjustment', 'card', 'card_adjustments')
  ) named (kind, debit, credit)
  where named.kind = transfer.kind and named.debit = coalesce(debit.contra_name, debit.kind)
    and named.credit = coalesce(credit.contra_name, credit.kind));
