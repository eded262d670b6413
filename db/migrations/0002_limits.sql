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
  taken timestamptz[] not null,
  -- How many slots the latest attempts got: those of one statement, which may be several.
  granted integer not null default 0,
  -- The minute of the latest attempt, by which the windows that are over are found. It changes, and with it an index,
  -- once a minute at most: an index on the time itself would be written by every attempt.
  checked_minute timestamptz not null
    generated always as (date_bin('1 minute', checked_at, '2000-01-01 00:00:00+00')) stored
) with (fillfactor = 60);
-- A window of thousands is read and written faster than it is compressed.
alter table rate_window alter column taken set storage external;
create index rate_window_checked_minute on rate_window (checked_minute);
