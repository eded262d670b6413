-- What operators do to a running service: what they have paused, and a book of what they did and why.

-- A way to pay that takes nothing new. Each process reads these rows about once a second (src/operators/pauses.ts).
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
  transfer_id bigint unique references transfer (id),
  detail jsonb
);

create trigger operator_action_terms after update on operator_action for each row
  execute function refuse_change('what an operator did never changes');
create trigger operator_action_kept before delete on operator_action for each row
  execute function refuse_change('what an operator did is never deleted');
create trigger operator_action_kept_all before truncate on operator_action
  execute function refuse_change('what an operator did is never deleted');
