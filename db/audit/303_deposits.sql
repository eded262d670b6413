-- each deposit is credited to the account of its payer
select transfer.id, payment.payer, account.address from transfer
join x402_payment payment on payment.id::text = transfer.reference
left join account on account.id = transfer.credit_account_id
where transfer.kind = 'deposit' and account.address is distinct from payment.payer;
