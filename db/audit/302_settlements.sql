-- each settled USDC payment is booked once with its amount, and no other payment is booked
select coalesce(transfer.reference, payment.id::text) as payment, max(payment.state) as state,
       count(transfer.id) as settlements, sum(transfer.amount_micro_usd) as settled,
       max(payment.amount_micro_usd) as amount
from (select * from transfer where kind in ('settlement', 'deposit')) transfer
full join x402_payment payment on payment.id::text = transfer.reference
where transfer.id is not null or payment.state = 'settled'
group by 1
having count(transfer.id) <> 1 or max(payment.state) is distinct from 'settled'
    or bool_or(transfer.state <> 'posted')
    or bool_or((payment.purpose = 'deposit') <> (transfer.kind = 'deposit'))
    or sum(transfer.amount_micro_usd) is distinct from max(payment.amount_micro_usd);
