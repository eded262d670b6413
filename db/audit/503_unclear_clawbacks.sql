-- what a refund or dispute took is known, or an operator decided about it, with its id in the reason
select id, account_id as account, kind, status, amount_cents as amount, currency, state
from clawback
where (currency <> 'usd' or not is_status_known)
  and not exists (select from operator_action
                  where subject = account_id::text and strpos(reason, clawback.id) > 0);
