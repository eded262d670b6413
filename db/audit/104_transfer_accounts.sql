-- both accounts of each transfer exist
select transfer.id, debit_account_id, credit_account_id from transfer
left join account debit on debit.id = debit_account_id
left join account credit on credit.id = credit_account_id
where debit.id is null or credit.id is null;
