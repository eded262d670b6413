-- What was charged and not delivered is given back: by its process while that lives, by another one when it has died.

-- A process that serves paid requests, and which of its holds' answers are delivered. Its heartbeat writes both, about
-- once a second. One that was silent for long is suspected, and dead when it has not spoken since; for ever then, so
-- that nothing changes what it has told.
create table gateway_process (
  id integer generated always as identity primary key,
  heartbeat_at timestamptz not null default now(),
  suspected_at timestamptz,
  is_dead boolean not null default false,
  -- Of its holds with smaller ids all are finished but those of `unfinished`: delivered, or ended without a charge, or
  -- their callers had left. Of the others those of `finished` are.
  finished_below bigint not null,
  unfinished bigint[] not null default '{}',
  finished bigint[] not null default '{}'
) with (fillfactor = 50);

-- The process that placed a hold; a job's hold has none, since a job is fetched later. It is no foreign key: its check
-- would lock the process's row in every request, and the row goes when the process does.
alter table transfer add column process_id integer;

-- A reversal's reference is the id of the charge or spend that it gives back, whole, from revenue to its payer.
-- Not validated, and so without reading the table: the rows that are there satisfied the narrower list.
alter table transfer drop constraint transfer_kind_check;
alter table transfer add constraint transfer_kind_check
  check (kind in ('top_up', 'charge', 'settlement', 'deposit', 'spend', 'reversal')) not valid;

-- The charges that were reversed, each once, and why: its process lived and told the caller that the request failed, or
-- it died before the last byte. Apart from the transfers, whose millions would have to be read for another index.
create table reversal (
  transfer_id bigint primary key references transfer (id),
  reason text not null check (reason in ('not_delivered', 'process_died')),
  created_at timestamptz not null default now()
);
