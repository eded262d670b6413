-- What the reconcilers remember, so that the replicas on this database share one schedule.

-- When each reconciler last began a turn, in whichever replica.
create table reconciler (
  name text primary key,
  started_at timestamptz not null default now()
);

-- When the processor is next asked for an open purchase's session; the older the purchase, the rarer.
alter table top_up add column next_check_at timestamptz not null default now();
create index top_up_next_check on top_up (next_check_at) where state = 'open';

-- A purchase whose session never came to be known ends too.
alter table top_up drop constraint top_up_check;
alter table top_up add constraint top_up_session_known
  check (state in ('opening', 'expired') or session_id is not null);

-- How far the processor's list of sessions has been read. It is part of every backup, so that a restored database makes
-- up for all that was paid since.
create table checkout_sweep (
  singleton boolean primary key default true check (singleton),
  -- Sessions created before this moment can no longer be paid, and have been read since their time ran out.
  read_until timestamptz not null default now() - interval '25 hours',
  -- The pass under way: when it began, and the last session it has read, from the newest backwards.
  pass_started_at timestamptz,
  pass_cursor text,
  check (pass_cursor is null or pass_started_at is not null)
);
insert into checkout_sweep default values;
