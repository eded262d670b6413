-- The ledger: double entry as two-phase transfers. Amounts are whole micro-USD.

-- Names this database to the card processor, so that money of another deployment is never credited here (R16).
create table instance (
  singleton boolean primary key default true check (singleton),
  id uuid not null default gen_random_uuid()
);
insert into instance default values;

-- A user's account holds its balance. A contra account is the other side of an entry and is only ever summed, so that
-- no row is touched by everybody.
create table account (
  id uuid primary key default gen_random_uuid(),
  kind text not null check (kind in ('card', 'contra')),
  contra_name text unique,
  balance_micro_usd bigint check (balance_micro_usd >= 0),
  created_at timestamptz not null default now(),
  check ((kind = 'contra') = (contra_name is not null)),
  check ((kind = 'contra') = (balance_micro_usd is null))
) with (fillfactor = 80);

insert into account (id, kind, contra_name) values
  ('00000000-0000-4000-8000-000000000001', 'contra', 'card_clearing'),
  ('00000000-0000-4000-8000-000000000002', 'contra', 'card_revenue');

-- A transfer moves an amount from the debited to the credited account. A pending one is a hold: its amount has left the
-- user's balance and either stays away (posted) or returns (voided). The accounts are deliberately no foreign keys:
-- their checks would lock the contra rows in every request. The audit looks for strays instead.
create table transfer (
  id bigint generated always as identity primary key,
  kind text not null check (kind in ('top_up', 'charge')),
  state text not null check (state in ('pending', 'posted', 'voided')),
  debit_account_id uuid not null,
  credit_account_id uuid not null,
  amount_micro_usd bigint not null check (amount_micro_usd > 0),
  -- Whoever ends a hold must name its current fence; taking a hold over raises it.
  fence integer not null default 1,
  -- A request's hold is void once its lease has passed by this database's clock.
  lease_until timestamptz,
  -- The checkout session of a top-up.
  reference text,
  created_at timestamptz not null default now(),
  ended_at timestamptz,
  check (debit_account_id <> credit_account_id),
  check ((state = 'pending') = (ended_at is null)),
  check ((kind = 'top_up') = (reference is not null))
);
create index transfer_pending on transfer (lease_until) where state = 'pending';
create unique index transfer_top_up on transfer (reference) where kind = 'top_up';

-- A purchase of credit. The row exists before the processor is called, and its id is the call's idempotency key.
create table top_up (
  id uuid primary key default gen_random_uuid(),
  state text not null default 'opening' check (state in ('opening', 'open', 'credited', 'expired')),
  -- The account comes into being with its first credit.
  account_id uuid not null,
  amount_cents integer not null check (amount_cents > 0),
  challenge_id text,
  session_id text unique,
  created_at timestamptz not null default now(),
  credited_at timestamptz,
  check (state = 'opening' or session_id is not null),
  check ((state = 'credited') = (credited_at is not null))
);
create index top_up_unfinished on top_up (created_at) where state in ('opening', 'open');
