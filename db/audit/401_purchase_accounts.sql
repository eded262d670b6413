-- each purchase is credited to its own account
select transfer.id, top_up.id as purchase, top_up.account_id as account, transfer.credit_account_id as credited
from transfer join top_up on top_up.session_id = transfer.reference
where transfer.kind = 'top_up' and transfer.credit_account_id <> top_up.account_id;
