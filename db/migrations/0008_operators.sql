-- What operators do to a running service and what they watch, and the reconcilers' turns.

-- When each reconciler last began a turn, in whichever replica; who is in it, and until when nobody else may begin one.
create table reconciler (
  name text primary key,
  started_at timestamptz not null default now(),
  -- Since when turns are taken without a pause.
  steady_since timestamptz not null default 'epoch',
  owner uuid,
  lease_until timestamptz,
  constraint reconciler_lease_check check ((owner is null) = (lease_until is null))
);

-- A way to pay that takes nothing new. Each process reads these rows about once a second (src/ledger/pauses.ts).
create table paused_flow (
  flow text primary key,
  since timestamptz not null default now(),
  operator text not null,
  reason text not null
);

-- Each change that an operator has made with a command, in the transaction of the change itself.
create table operator_action (
  id bigint generated always as identity primary key,
  at timestamptz not null default now(),
  operator text not null check (length(operator) between 1 and 100),
  action text not null,
  -- What it was done to: a flow, an account, a purchase.
  subject text not null,
  reason text not null check (length(reason) between 1 and 500),
  -- Chosen by whoever asks for a change that moves money, so that a repetition moves nothing.
  key uuid unique,
  -- The entry that it made in the books.
  transfer_id uuid unique references transfer (id),
  detail jsonb,
  -- The role that was logged in. The operator's name is only what they say.
  database_user text
);

create trigger operator_action_terms after update on operator_action for each row
  execute function refuse_change('what an operator did never changes');
create trigger operator_action_kept before delete on operator_action for each row
  execute function refuse_change('what an operator did is never deleted');
create trigger operator_action_kept_all before truncate on operator_action
  execute function refuse_change('what an operator did is never deleted');

create function operator_action_begins() returns trigger language plpgsql as $$
begin
  new.at := clock_timestamp();
  new.database_user := session_user;
  return new;
end $$;
create trigger operator_action_begins before insert on operator_action for each row
  execute function operator_action_begins();

-- A pause begins and ends together with the newest entry about its flow, which the same transaction makes. Names carry
-- their schema, so that a temporary table can't take the place of one of ours.
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

-- The last audit of each kind: of the books alone, or of the books held against processor and chain.
create table audit_result (
  kind text primary key check (kind in ('books', 'outside')),
  ended_at timestamptz not null default now(),
  -- 0: every rule held.
  broken_rules integer not null check (broken_rules >= 0)
);
