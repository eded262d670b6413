-- Answers to prepaid requests that were charged and did not arrive: what the identical request is told, and its audio.

-- Which request spent a nonce (16 bytes of a SHA-256 of credential and request), and the debit that was made for it.
-- Both are null for the nonces of earlier releases.
alter table prepaid_nonce
  add column request_digest bytea,
  add column hold_id bigint,
  add constraint prepaid_nonce_request check (request_digest is null or hold_id is not null) not valid;

-- Audio that is kept for a caller whose connection broke before his answer had arrived. The row is there before the
-- object, and goes after it.
create table lost_answer (
  -- Names the object, and is part of the link: nobody can guess it.
  id uuid primary key default gen_random_uuid(),
  -- No foreign key: its check would lock the transfer.
  hold_id bigint not null unique,
  size_bytes integer not null check (size_bytes > 0),
  -- When the object was there.
  stored_at timestamptz,
  expires_at timestamptz not null default now() + interval '10 minutes'
);
create index lost_answer_expires_at on lost_answer (expires_at);
