-- What has been booked stays as it was booked. One role may own and use this database: so triggers refuse what the
-- service never does. Their conditions are evaluated without a call, and those on columns only where a statement sets
-- these, which no request's statement does. They look at an update after it: before it, each would lock the row again.

-- What a charge or a spend has paid for, so that its amount can be checked. A rate is in 10^-12 USD per character; it is
-- missing where a quote had another one than the catalog by then.
alter table transfer
  add column characters integer,
  add column rate_pico_usd bigint,
  add column trace_id uuid;

-- Constraints that rows of earlier releases may break. `npm run migrate` validates them once this migration is
-- committed, so that no table is locked while it is read; they hold for new rows at once.
alter table transfer
  add constraint transfer_price check (
    characters is null and rate_pico_usd is null
    or characters > 0 and kind in ('charge', 'spend')
       and (rate_pico_usd is null or amount_micro_usd = (characters * rate_pico_usd + 999999) / 1000000)
  ) not valid;
alter table x402_payment
  add constraint x402_payment_transaction_hash check (transaction_hash ~ '^0x[0-9a-f]{64}$') not valid,
  add constraint x402_payment_lower_case check (
    network = lower(network) and asset = lower(asset) and payer = lower(payer) and pay_to = lower(pay_to)
    and nonce = lower(nonce)
  ) not valid;

-- Refuses the row's change, or the statement; its argument tells the rule.
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '%', tg_argv[0] using errcode = 'integrity_constraint_violation', table = tg_table_name;
end $$;

create trigger transfer_begun before insert on transfer for each row
  when (new.kind in ('charge', 'spend') and new.state <> 'pending' or new.created_at is distinct from now())
  execute function refuse_change('a charge begins as a hold, and a transfer now');
create trigger transfer_lease after insert or update of lease_until on transfer for each row
  when (new.lease_until > now() + interval '1 day')
  execute function refuse_change('the lease of a hold ends within a day');
create trigger transfer_terms after update of id, kind, debit_account_id, credit_account_id, amount_micro_usd,
  reference, created_at, characters, rate_pico_usd, trace_id on transfer for each row
  execute function refuse_change('what a transfer moves never changes');
create trigger transfer_ended after update on transfer for each row when (old.state <> 'pending')
  execute function refuse_change('a transfer that has ended never changes');
create trigger transfer_kept before delete on transfer for each row
  execute function refuse_change('a transfer is never deleted');
create trigger transfer_kept_all before truncate on transfer
  execute function refuse_change('a transfer is never deleted');

create trigger reversal_terms after update on reversal for each row
  execute function refuse_change('a reversal never changes');
create trigger reversal_kept before delete on reversal for each row
  execute function refuse_change('a reversal is never deleted');
create trigger reversal_kept_all before truncate on reversal
  execute function refuse_change('a reversal is never deleted');

create trigger account_terms after update of id, kind, contra_name, address, created_at on account for each row
  execute function refuse_change('only the balance of an account changes');
create trigger account_kept before delete on account for each row
  execute function refuse_change('an account is never deleted');
create trigger account_kept_all before truncate on account
  execute function refuse_change('an account is never deleted');

create trigger top_up_terms after update of id, account_id, challenge_id on top_up for each row
  execute function refuse_change('a purchase stays that of its account');
create trigger top_up_credited after update on top_up for each row when (old.state = 'credited')
  execute function refuse_change('a purchase that is credited never changes');
create trigger top_up_check after insert or update of next_check_at on top_up for each row
  when (new.next_check_at > now() + interval '5 days')
  execute function refuse_change('a purchase is looked at within 5 days');
create trigger top_up_kept before delete on top_up for each row when (old.state = 'credited')
  execute function refuse_change('a purchase that is credited is never deleted');
create trigger top_up_kept_all before truncate on top_up
  execute function refuse_change('a purchase that is credited is never deleted');
create trigger checkout_sweep_read after update of read_until, pass_started_at on checkout_sweep for each row
  when (new.read_until > now() or new.pass_started_at > now())
  execute function refuse_change('no list is read ahead of the time');

create trigger x402_payment_terms after update of id, identifier, request_hash, network, asset, payer, nonce, pay_to,
  amount_micro_usd, valid_before, purpose, created_at on x402_payment for each row
  execute function refuse_change('what a payment promises never changes');
create trigger x402_payment_settled after update of state, fence, head_block, lease_until, refusal, transaction_hash,
  log_index, receipt, settling_at, failed_at, settled_at on x402_payment for each row when (old.state = 'settled')
  execute function refuse_change('a payment that is settled never changes');
create trigger x402_payment_sent after update of state on x402_payment for each row
  when (old.state <> 'reserved' and new.state = 'reserved')
  execute function refuse_change('a payment that may have been sent is no reservation again');
create trigger x402_payment_lease after insert or update of lease_until, checked_at on x402_payment for each row
  when (new.lease_until > now() + interval '1 day' or new.checked_at > now())
  execute function refuse_change('the lease of a payment ends within a day, and no check lies ahead');
create trigger x402_payment_kept before delete on x402_payment for each row when (old.state <> 'reserved')
  execute function refuse_change('a payment that may have been sent is never deleted');
create trigger x402_payment_kept_all before truncate on x402_payment
  execute function refuse_change('a payment that may have been sent is never deleted');

create trigger prepaid_nonce_terms after update on prepaid_nonce for each row
  execute function refuse_change('a spent nonce never changes');
create trigger prepaid_nonce_kept before delete on prepaid_nonce for each row
  when (old.spent_at > now() - interval '24 hours')
  execute function refuse_change('a spent nonce is kept for a day');
create trigger prepaid_nonce_kept_all before truncate on prepaid_nonce
  execute function refuse_change('a spent nonce is kept for a day');

create trigger job_terms after update of id, account_id, hold_id, trace_id on job for each row
  execute function refuse_change('a job keeps its account and its hold');
create trigger job_due after insert or update of run_at on job for each row
  when (new.run_at > now() + interval '1 day')
  execute function refuse_change('a job is due within a day');
create trigger job_kept before delete on job for each row when (old.state in ('queued', 'processing'))
  execute function refuse_change('a job that lives is not deleted');
