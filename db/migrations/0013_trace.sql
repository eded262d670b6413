-- The request that made a payment, so that who has its trace id finds the money; what a payment settles or deposits has
-- the same. Payments of earlier releases have none.
alter table x402_payment add column trace_id uuid;

drop trigger x402_payment_terms on x402_payment;
create trigger x402_payment_terms after update of id, identifier, request_hash, network, asset, payer, nonce, pay_to,
  amount_micro_usd, valid_before, purpose, created_at, trace_id on x402_payment for each row
  execute function refuse_change('what a payment promises never changes');
