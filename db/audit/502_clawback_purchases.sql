-- each refund and dispute belongs to a credited purchase of the same account
select clawback.id, clawback.account_id as account, top_up.account_id as purchase_of, top_up.state
from clawback left join top_up on top_up.id = clawback.top_up_id
where top_up.state is distinct from 'credited' or top_up.account_id <> clawback.account_id;
