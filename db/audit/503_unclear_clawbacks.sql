-- each refund and dispute is in USD with a known status, or an operator's reason names its id
select id, account_id as account, kind, status, amount_cents as amount, currency, state
from clawback
where (currency <> 'usd' or not is_status_known)
  and not exists (select from operator_action
                  where subject = account_id::text and strpos(reason, clawback.id) > 0);
