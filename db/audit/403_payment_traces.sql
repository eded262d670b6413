-- each settlement and deposit has the trace id of its payment
select transfer.id, payment.id as payment, payment.trace_id, transfer.trace_id as transfer_trace_id
from x402_payment payment join transfer on transfer.reference = payment.id::text
where transfer.kind in ('settlement', 'deposit') and transfer.trace_id <> payment.trace_id;
