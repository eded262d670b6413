-- What the database itself says of new rows, whichever role writes them: where their ids come from, and who made a
-- change and when. Names carry their schema, so that a temporary table or sequence can't take the place of one of ours.

create or replace function transfer_begins() returns trigger language plpgsql as $$
declare
  rule text;
begin
  if new.id <> currval('public.transfer_id_seq') then
    -- The spends of one statement draw their ids before the first of them is made, and their nonces keep them.
    if not exists (select from public.prepaid_nonce
                   where account_id = new.debit_account_id and nonce = new.reference and hold_id = new.id) then
      rule := 'the id of a transfer is drawn for it';
    end if;
  end if;
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

create trigger prepaid_nonce_drawn after insert on prepaid_nonce for each row
  when (case when new.hold_id is not null then new.hold_id <> currval('public.transfer_id_seq') end)
  execute function refuse_change('the id of a spend is drawn for it');

-- The role that was logged in; null in entries of earlier releases. The operator's name is only what they say.
alter table operator_action add column database_user text;

create function operator_action_begins() returns trigger language plpgsql as $$
begin
  new.at := clock_timestamp();
  new.database_user := session_user;
  return new;
end $$;
create trigger operator_action_begins before insert on operator_action for each row
  execute function operator_action_begins();

-- A pause begins and ends together with the newest entry about its flow, which the same transaction makes.
create function paused_flow_recorded() returns trigger language plpgsql as $$
declare
  pause public.paused_flow := case tg_op when 'INSERT' then new else old end;
  entry record;
begin
  select action, operator, reason, xmin = pg_current_xact_id()::xid as is_new into entry
  from public.operator_action where subject = pause.flow and action in ('pause', 'resume') order by id desc limit 1;
  if entry.is_new is not true
     or tg_op = 'DELETE' and entry.action <> 'resume'
     or tg_op = 'INSERT' and (entry.action, entry.operator, entry.reason, now())
                             is distinct from ('pause', pause.operator, pause.reason, pause.since) then
    raise exception 'a pause begins and ends with its entry in operator_action'
      using errcode = 'integrity_constraint_violation', table = 'paused_flow';
  end if;
  return null;
end $$;
create trigger paused_flow_recorded after insert or delete on paused_flow for each row
  execute function paused_flow_recorded();
create trigger paused_flow_terms after update on paused_flow for each row
  execute function refuse_change('a pause never changes');
create trigger paused_flow_kept_all before truncate on paused_flow
  execute function refuse_change('a pause ends with its entry in operator_action');
