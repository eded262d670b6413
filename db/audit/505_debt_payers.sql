-- each debt is paid by the account that owes it
select transfer.id, debit_account_id as payer, debt.owner_id as debtor
from transfer join account debt on debt.id = credit_account_id
where transfer.kind = 'debt_payment' and debt.owner_id is distinct from debit_account_id;
