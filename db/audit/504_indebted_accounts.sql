-- exactly the accounts with a debt are marked as indebted
select coalesce(owner.id, debt.owner_id) as account, owner.is_indebted, debt.balance_micro_usd as debt
from (select * from account where kind = 'card') owner
full join (select * from account where kind = 'debt') debt on debt.owner_id = owner.id
where owner.id is null or owner.is_indebted <> (coalesce(debt.balance_micro_usd, 0) > 0);
