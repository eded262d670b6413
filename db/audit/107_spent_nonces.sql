-- each used nonce has a prepaid spend, and each recent spend has a used nonce
select coalesce(spend.debit_account_id, nonce.account_id) as account, nonce.spent_at, spend.id as spend
from (select * from transfer where kind = 'spend') spend
full join prepaid_nonce nonce
  on nonce.account_id = spend.debit_account_id and nonce.nonce = spend.reference
    and nonce.spent_at = spend.created_at and nonce.hold_id = spend.id
where spend.id is null
   or nonce.nonce is null and spend.created_at > now() - interval '24 hours';
