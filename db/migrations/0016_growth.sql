-- Indexes by which what is due is found among millions of rows that are not. None of them is on the table of transfers:
-- each of the others is read once for them, which takes seconds at most where there are millions of payments.

-- The minute of a window's latest attempt, by which the windows that are over are found. It changes, and with it an
-- index, once a minute at most: an index on the time itself would be written by every attempt. The rows are those of the
-- last minutes only, so they are soon rewritten.
alter table rate_window add column checked_minute timestamptz not null
  generated always as (date_bin('1 minute', checked_at, '2000-01-01 00:00:00+00')) stored;
create index rate_window_checked_minute on rate_window (checked_minute);

-- A deposit has no audio, and a payment that has failed no replay window that its audio would wait for.
drop index x402_payment_audio;
create index x402_payment_replayable on x402_payment (settled_at)
  where state = 'settled' and purpose = 'speech' and audio_deleted_at is null;
create index x402_payment_failed_audio on x402_payment (failed_at)
  where state = 'failed' and purpose = 'speech' and audio_deleted_at is null;

-- Those that are open are found by their next check.
drop index top_up_unfinished;
create index top_up_opening on top_up (created_at) where state = 'opening';

-- When a job that waits goes by its age: two minutes for each turn (src/jobs/turn.ts).
create index job_by_age on job ((run_at at time zone 'utc' + turn * interval '120 seconds'))
  where state = 'queued' and turn > 0;

-- A pattern that counts is dear: 9 microseconds for an address, 20 for a hash, at each change of a row, where these take one.
-- The rules are the same ones; `npm run migrate` validates them once this migration is committed.
alter table account drop constraint account_address_check, add constraint account_address_check
  check (length(address) = 42 and address ~ '^0x[0-9a-f]+$') not valid;
alter table x402_payment drop constraint x402_payment_transaction_hash, add constraint x402_payment_transaction_hash
  check (length(transaction_hash) = 66 and transaction_hash ~ '^0x[0-9a-f]+$') not valid;
