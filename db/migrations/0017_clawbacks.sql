-- Money that the card processor took back: refunds and disputes of purchases. What an account cannot give is a debt, an
-- account of its own that belongs to the card account; its balance is what is owed.

alter table account drop constraint account_kind_check;
alter table account
  -- The card account that owes a debt.
  add column owner_id uuid,
  -- True while its debt is above 0: then nothing is spent from it.
  add column is_indebted boolean not null default false,
  -- Since when the operator lets nothing be spent from it.
  add column frozen_at timestamptz,
  add constraint account_kind_check check (kind in ('card', 'wallet', 'debt', 'contra')) not valid,
  add constraint account_debt_check check ((kind = 'debt') = (owner_id is not null)) not valid,
  add constraint account_barred_check check (kind = 'card' or not is_indebted and frozen_at is null) not valid;
create unique index account_debt on account (owner_id) where kind = 'debt';
create index account_indebted on account (id) where is_indebted;
insert into account (id, kind, contra_name) values
  ('00000000-0000-4000-8000-000000000006', 'contra', 'card_adjustments');

drop trigger account_terms on account;
create trigger account_terms after update of id, kind, contra_name, address, owner_id, created_at on account for each row
  execute function refuse_change('only the balance of an account changes, and who may spend it');

-- A refund or a dispute by the processor's own id, as it was read last. Each time that it is taken from the account, and
-- each time that it is returned, one transfer names it.
--
--     none -- the processor has taken the money --> taken -- it gave the money back --> returned -- taken again --> taken
create table clawback (
  id text primary key,
  kind text not null check (kind in ('refund', 'dispute')),
  top_up_id uuid not null,
  account_id uuid not null,
  charge_id text,
  amount_cents integer not null check (amount_cents > 0),
  -- The processor's word.
  status text not null,
  state text not null default 'none' check (state in ('none', 'taken', 'returned')),
  -- How often it was taken.
  turns integer not null default 0,
  -- The processor's time.
  created_at timestamptz not null,
  -- When the processor is next asked for it; null once nothing can change any more.
  next_check_at timestamptz,
  -- Raised by whoever asks the processor: an answer to an earlier question changes nothing.
  fence integer not null default 0,
  check ((state = 'none') = (turns = 0))
);
create index clawback_next_check on clawback (next_check_at) where next_check_at is not null;
create index clawback_account on clawback (account_id);
create trigger clawback_terms after update of id, kind, top_up_id, account_id, charge_id, amount_cents, created_at on clawback
  for each row execute function refuse_change('a refund or dispute stays that of its purchase');
create trigger clawback_check after insert or update of next_check_at on clawback for each row
  when (new.next_check_at > now() + interval '5 days')
  execute function refuse_change('a refund or dispute is looked at within 5 days');
create trigger clawback_kept before delete on clawback for each row
  execute function refuse_change('a refund or dispute is never deleted');
create trigger clawback_kept_all before truncate on clawback
  execute function refuse_change('a refund or dispute is never deleted');

-- By which the refunds and disputes of a purchase name it. Purchases of earlier releases have none.
alter table top_up add column payment_intent_id text;
create index top_up_payment_intent on top_up (payment_intent_id) where payment_intent_id is not null;
create index top_up_account on top_up (account_id);

-- How far each list of the processor has been read. It is in the place of checkout_sweep, which the release before still
-- reads, and is dropped by a later one.
create table processor_list (
  name text primary key check (name in ('sessions', 'refunds', 'disputes')),
  -- What was created before this moment has been read since its time ran out.
  read_until timestamptz not null,
  -- The pass under way: when it began, and the last entry that it has read, from the newest backwards.
  pass_started_at timestamptz,
  pass_cursor text,
  check (pass_cursor is null or pass_started_at is not null)
);
insert into processor_list (name, read_until) select 'sessions', read_until from checkout_sweep;
-- Those of the purchases that were made before anybody looked.
insert into processor_list (name, read_until)
select name, (select least(now(), coalesce(min(created_at), now())) - interval '1 hour' from top_up)
from unnest(array['refunds', 'disputes']) name;
create trigger processor_list_read after update of read_until, pass_started_at on processor_list for each row
  when (new.read_until > clock_timestamp() or new.pass_started_at > clock_timestamp())
  execute function refuse_change('no list is read ahead of the time');

create or replace function transfer_begins() returns trigger language plpgsql as $$
declare
  rule text;
begin
  if new.kind not in ('top_up', 'charge', 'settlement', 'deposit', 'spend', 'reversal', 'refund', 'refund_failed', 'dispute',
                      'dispute_won', 'debt_payment', 'adjustment') then
    rule := 'a transfer is of a kind that the ledger knows';
  elsif new.kind in ('charge', 'spend') and new.state <> 'pending' or new.created_at is distinct from now() then
    rule := 'a charge begins as a hold, and a transfer now';
  elsif new.lease_until > now() + interval '1 day' then
    rule := 'the lease of a hold ends within a day';
  elsif new.characters is not null or new.rate_pico_usd is not null then
    if new.characters is null or new.characters <= 0 or new.kind not in ('charge', 'spend')
       or new.amount_micro_usd <> (new.characters * new.rate_pico_usd + 999999) / 1000000 then
      rule := 'a charge is the price of its characters';
    end if;
  end if;
  if rule is not null then
    raise exception '%', rule using errcode = 'integrity_constraint_violation', table = 'transfer';
  end if;
  return new;
end $$;
