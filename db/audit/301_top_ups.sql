-- each paid checkout session is credited once, with the amount of its purchase
select coalesce(transfer.reference, top_up.session_id) as session, count(transfer.id) as credits,
       sum(transfer.amount_micro_usd) as credited, max(top_up.amount_cents) as cents
from (select * from transfer where kind = 'top_up') transfer
full join top_up on top_up.session_id = transfer.reference
where transfer.id is not null or top_up.state = 'credited'
group by 1
having count(transfer.id) <> 1 or bool_or(top_up.state is distinct from 'credited')
    or sum(transfer.amount_micro_usd) is distinct from max(top_up.amount_cents) * 10000::numeric;
