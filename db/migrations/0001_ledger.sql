-- The ledger: double entry as two-phase transfers. Amounts are whole micro-USD.

-- Refuses a row's change, or a statement; its argument is the rule. Triggers that use it look at rows after the change:
-- before it, each would lock the row again. Their conditions are evaluated without a call.
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '%', tg_argv[0] using errcode = 'integrity_constraint_violation', table = tg_table_name;
end $$;

-- A lease that lies further ahead than its own length does not bind: the database's clock has stepped back.
-- `clock_timestamp()` is never behind the `now()` of whoever took the lease, however long a statement has waited.
create function lease_has_ended(lease_until timestamptz, length_seconds double precision) returns boolean
  volatile language sql as
  'select lease_until < now() or lease_until > clock_timestamp() + make_interval(secs => length_seconds)';

-- Whose money this database holds: USDC of one network and asset, and card credit of the processor's test or live mode.
create table instance (
  singleton boolean primary key default true check (singleton),
  -- Names this database to the card processor, so that money of another deployment is never credited here (R16).
  id uuid not null default gen_random_uuid(),
  -- Those that the database was first used with, for ever. The address is in lower case.
  network text,
  asset text,
  -- The mode of card accounts that name none; null until a first key tells it.
  card_livemode boolean,
  constraint instance_network_check check ((network is null) = (asset is null) and asset = lower(asset))
);
insert into instance default values;

create function instance_keeps_network() returns trigger language plpgsql as $$
begin
  if old.network is not null and (new.network, new.asset) is distinct from (old.network, old.asset) then
    raise exception 'this database belongs to % and %, for ever', old.network, old.asset;
  end if;
  return new;
end $$;
create trigger instance_keeps_network before update of network, asset on instance
  for each row execute function instance_keeps_network();

-- Whether an account is of a mode of the card processor. One that names none is of the mode that the instance holds, or
-- of the first key's. Null asks for accounts of either mode.
create function card_livemode() returns boolean stable language sql as 'select card_livemode from instance';
create function is_of_mode(account_livemode boolean, wanted boolean) returns boolean stable language sql as
  'select wanted is null or coalesce(account_livemode, card_livemode(), wanted) = wanted';

-- A user's account holds its balance. A contra account is the other side of an entry and is only ever summed, so that
-- no row is touched by everybody. A debt belongs to a card account; its balance is what is owed (R61).
create table account (
  id uuid primary key default gen_random_uuid(),
  kind text not null,
  contra_name text unique,
  balance_micro_usd bigint check (balance_micro_usd >= 0),
  created_at timestamptz not null default now(),
  -- The payer's EVM address in lower case; a wallet comes into being with its first deposit.
  address text unique,
  -- The mode of the processor's key that a card account was first credited with.
  livemode boolean,
  -- The card account that owes a debt.
  owner_id uuid,
  -- True while its debt is above 0: then nothing is spent from it.
  is_indebted boolean not null default false,
  -- Since when the operator lets nothing be spent from it.
  frozen_at timestamptz,
  constraint account_kind_check check (kind in ('card', 'wallet', 'debt', 'contra')),
  check ((kind = 'contra') = (contra_name is not null)),
  check ((kind = 'contra') = (balance_micro_usd is null)),
  -- A pattern that counts is slow: 9 microseconds for an address, where this takes one.
  constraint account_address_check check (length(address) = 42 and address ~ '^0x[0-9a-f]+$'),
  constraint account_wallet_check check ((kind = 'wallet') = (address is not null)),
  constraint account_livemode_check check (kind = 'card' or livemode is null),
  constraint account_debt_check check ((kind = 'debt') = (owner_id is not null)),
  constraint account_barred_check check (kind = 'card' or not is_indebted and frozen_at is null)
) with (fillfactor = 80);
create unique index account_debt on account (owner_id) where kind = 'debt';
create index account_indebted on account (id) where is_indebted;

insert into account (id, kind, contra_name) values
  ('00000000-0000-4000-8000-000000000001', 'contra', 'card_clearing'),
  ('00000000-0000-4000-8000-000000000002', 'contra', 'card_revenue'),
  ('00000000-0000-4000-8000-000000000003', 'contra', 'usdc_clearing'),
  ('00000000-0000-4000-8000-000000000004', 'contra', 'usdc_revenue'),
  ('00000000-0000-4000-8000-000000000005', 'contra', 'prepaid_revenue'),
  ('00000000-0000-4000-8000-000000000006', 'contra', 'card_adjustments');

create trigger account_terms after update of id, kind, contra_name, address, owner_id, created_at on account for each row
  execute function refuse_change('only the balance of an account changes, and who may spend it');
create trigger account_mode after update of livemode on account for each row
  when (old.livemode is not null and new.livemode is distinct from old.livemode)
  execute function refuse_change('an account keeps its mode');
create trigger account_kept before delete on account for each row
  execute function refuse_change('an account is never deleted');
create trigger account_kept_all before truncate on account
  execute function refuse_change('an account is never deleted');

-- A transfer moves an amount from the debited to the credited account. A pending one is a hold: its amount has left the
-- user's balance and either stays away (posted) or returns (voided). The accounts are deliberately no foreign keys:
-- their checks would lock the contra rows in every request. The audit looks for strays instead.
create table transfer (
  -- Made at random, so that no database ever gives it out twice: not even one that has lost its last commits.
  id uuid primary key default gen_random_uuid(),
  -- The order of the book. Nothing is named by it.
  position bigint generated always as identity,
  kind text not null,
  state text not null check (state in ('pending', 'posted', 'voided')),
  debit_account_id uuid not null,
  credit_account_id uuid not null,
  amount_micro_usd bigint not null check (amount_micro_usd > 0),
  -- Whoever ends a hold must name its current fence; taking a hold over raises it.
  fence integer not null default 1,
  -- A request's hold is void once its lease has ended. A job's hold has none: it ends with the job.
  lease_until timestamptz,
  -- The checkout session of a top-up, the payment of a settlement or deposit, the nonce of a spend, the processor's id of
  -- a refund or dispute; null for a charge.
  reference text,
  created_at timestamptz not null default now(),
  ended_at timestamptz,
  -- What a charge or a spend pays for. A rate is in 10^-12 USD per character; it is missing where a quote had another one
  -- than the catalog by then.
  characters integer,
  rate_pico_usd bigint,
  trace_id uuid,
  -- The model is known when a price is held, the upstream when it has spoken. The cost is that of the operator, in 10^-12
  -- USD per character.
  model text,
  upstream text,
  cost_pico_usd bigint,
  check (debit_account_id <> credit_account_id),
  check ((state = 'pending') = (ended_at is null)),
  constraint transfer_reference_check check ((kind <> 'charge') = (reference is not null))
);
create index transfer_pending on transfer (lease_until) where state = 'pending';
-- For the charges of an account, the last ones first.
create index transfer_debited on transfer (debit_account_id, id);
create index transfer_position on transfer using brin (position);
create unique index transfer_top_up on transfer (reference) where kind = 'top_up';
create unique index transfer_settlement on transfer (reference) where kind = 'settlement';
create unique index transfer_deposit on transfer (reference) where kind = 'deposit';

-- What a transfer must be when it is made. It is not asked again when it ends: its terms never change. A function is read
-- once per connection, where a check would be read in every statement.
create function transfer_begins() returns trigger language plpgsql as $$
declare
  rule text;
begin
  if new.kind not in ('top_up', 'charge', 'settlement', 'deposit', 'spend', 'refund', 'refund_failed', 'dispute',
                      'dispute_won', 'debt_payment', 'adjustment') then
    rule := 'a transfer is of a kind that the ledger knows';
  elsif new.kind in ('charge', 'spend') and new.state <> 'pending' or new.created_at is distinct from now() then
    rule := 'a charge begins as a hold, and a transfer now';
  elsif new.lease_until > now() + interval '1 day' then
    rule := 'the lease of a hold ends within a day';
  elsif new.characters is not null or new.rate_pico_usd is not null then
    if new.characters is null or new.characters <= 0 or new.kind not in ('charge', 'spend')
       or new.amount_micro_usd <> (new.characters * new.rate_pico_usd + 999999) / 1000000 then
      rule := 'a charge is the price of its characters';
    end if;
  end if;
  if rule is not null then
    raise exception '%', rule using errcode = 'integrity_constraint_violation', table = 'transfer';
  end if;
  return new;
end $$;

create trigger transfer_begins before insert on transfer for each row execute function transfer_begins();
create trigger transfer_lease after update of lease_until on transfer for each row
  when (new.lease_until > now() + interval '1 day')
  execute function refuse_change('the lease of a hold ends within a day');
create trigger transfer_terms after update of id, position, kind, debit_account_id, credit_account_id, amount_micro_usd,
  reference, created_at, characters, rate_pico_usd, trace_id, model on transfer for each row
  execute function refuse_change('what a transfer moves never changes');
create trigger transfer_ended after update on transfer for each row when (old.state <> 'pending')
  execute function refuse_change('a transfer that has ended never changes');
create trigger transfer_kept before delete on transfer for each row
  execute function refuse_change('a transfer is never deleted');
create trigger transfer_kept_all before truncate on transfer
  execute function refuse_change('a transfer is never deleted');
