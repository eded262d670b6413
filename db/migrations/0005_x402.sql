-- Payment in USDC under x402: the state of each payment, and its revenue in the ledger.

insert into account (id, kind, contra_name) values
  ('00000000-0000-4000-8000-000000000003', 'contra', 'usdc_clearing'),
  ('00000000-0000-4000-8000-000000000004', 'contra', 'usdc_revenue');

-- A settlement's reference is the id of its payment.
alter table transfer drop constraint transfer_kind_check, drop constraint transfer_check2;
alter table transfer
  add constraint transfer_kind_check check (kind in ('top_up', 'charge', 'settlement')),
  add constraint transfer_reference_check check ((kind in ('top_up', 'settlement')) = (reference is not null));
create unique index transfer_settlement on transfer (reference) where kind = 'settlement';

-- Since when a payee is known to the service, for its validFrom in the signed metadata.
create table x402_payee (
  address text primary key,
  first_seen_at timestamptz not null default now()
);

-- One payment by an on-chain authorization. The row is written before anything is sent anywhere; once a settle may
-- have been sent it stays for ever, since the same authorization must never be used a second time.
--
--   (none) -> reserved -> settling -> settled
--             reserved -> (none)      released: no settle was sent
--                         settling -> refused | unknown
--                         unknown  -> settled | failed     as the chain tells
--                         refused  -> settled | failed     as the chain tells
create table x402_payment (
  id bigint generated always as identity primary key,
  state text not null default 'reserved'
    check (state in ('reserved', 'settling', 'settled', 'refused', 'unknown', 'failed')),
  identifier text not null unique,
  -- SHA-256 of method, URL, body and payload: the request that the identifier belongs to.
  request_hash bytea not null,
  network text not null,
  asset text not null,
  -- Addresses and nonce in lower case.
  payer text not null,
  nonce text not null,
  pay_to text not null,
  amount_micro_usd bigint not null check (amount_micro_usd > 0),
  -- Unix seconds, as signed.
  valid_before bigint not null,
  -- Where a search for the authorization on the chain begins.
  head_block bigint not null,
  -- Raised when a reservation is taken over; whoever settles must name it.
  fence integer not null default 1,
  -- While a process is at it, by this database's clock. It is renewed, so that it soon passes when the process dies.
  lease_until timestamptz,
  -- The reason of a refused settlement, as it is told again on each replay.
  refusal text,
  transaction_hash text,
  log_index integer,
  -- The PAYMENT-RESPONSE header, for replays.
  receipt text,
  created_at timestamptz not null default now(),
  -- When a settle was about to be sent.
  settling_at timestamptz,
  -- When the settlement was refused or proved to have failed, for the payer's parallel requests.
  failed_at timestamptz,
  settled_at timestamptz,
  -- When the chain was last asked.
  checked_at timestamptz,
  audio_deleted_at timestamptz,
  unique (network, asset, payer, nonce),
  unique (network, transaction_hash, log_index),
  check ((state in ('reserved', 'settling')) = (lease_until is not null)),
  check ((state = 'reserved') = (settling_at is null)),
  check ((state = 'settled') = (settled_at is not null)),
  check ((state = 'settled') = (transaction_hash is not null and log_index is not null and receipt is not null)),
  check (state <> 'refused' or refusal is not null)
);
create index x402_payment_unfinished on x402_payment (checked_at nulls first)
  where state in ('reserved', 'settling', 'refused', 'unknown');
create index x402_payment_payer_open on x402_payment (payer, id)
  where state in ('reserved', 'settling', 'refused', 'unknown');
create index x402_payment_payer_failed on x402_payment (payer, failed_at) where failed_at is not null;
create index x402_payment_audio on x402_payment (settled_at)
  where state in ('settled', 'failed') and audio_deleted_at is null;
