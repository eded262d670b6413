-- no account has a negative balance
select id, balance_micro_usd as balance from account where balance_micro_usd < 0;
