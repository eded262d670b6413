-- Rate limits: exact rolling windows that all processes share (R39). One row a bucket, named by a hash of what it counts.
create table rate_window (
  -- SHA-256 of scope and key, so that neither an address nor a bearer id is stored.
  key bytea primary key,
  -- The kind of bucket, as X-RateLimit-Scope names it.
  scope text not null,
  -- The latest attempt, and whether it got a slot.
  checked_at timestamptz not null,
  allowed boolean not null,
  -- When the slots of the window were taken, ascending.
  taken timestamptz[] not null
) with (fillfactor = 60);
-- A window of thousands is read and written faster than it is compressed.
alter table rate_window alter column taken set storage external;
