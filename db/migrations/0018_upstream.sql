-- What was spoken, by whom, and what that costs the operator, for the reports on what is earned. Nullable: earlier
-- releases write none of it. A cost is in 10^-12 USD per character, as rates are.
alter table transfer
  add column model text,
  add column upstream text,
  add column cost_pico_usd bigint;
alter table x402_payment
  add column model text,
  add column characters integer,
  add column upstream text,
  add column cost_pico_usd bigint;

-- The model is known when a price is held, the upstream when it has spoken. What has ended changes in nothing anyway.
drop trigger transfer_terms on transfer;
create trigger transfer_terms after update of id, kind, debit_account_id, credit_account_id, amount_micro_usd,
  reference, created_at, characters, rate_pico_usd, trace_id, model on transfer for each row
  execute function refuse_change('what a transfer moves never changes');
drop trigger x402_payment_terms on x402_payment;
create trigger x402_payment_terms after update of id, identifier, request_hash, network, asset, payer, nonce, pay_to,
  amount_micro_usd, valid_before, purpose, created_at, trace_id, model, characters on x402_payment for each row
  execute function refuse_change('what a payment promises never changes');
drop trigger x402_payment_settled on x402_payment;
create trigger x402_payment_settled after update of state, fence, head_block, lease_until, refusal, transaction_hash,
  log_index, receipt, settling_at, failed_at, settled_at, upstream, cost_pico_usd on x402_payment for each row
  when (old.state = 'settled')
  execute function refuse_change('a payment that is settled never changes');
