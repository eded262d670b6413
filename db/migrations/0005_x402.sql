-- Payment in USDC under x402: the state of each payment by an on-chain authorization, of speech or as a deposit.

-- Since when a payee is known to the service, for its validFrom in the signed metadata.
create table x402_payee (
  address text primary key,
  first_seen_at timestamptz not null default now()
);

-- One payment. The row is written before anything is sent anywhere; once a settle may have been sent it stays for ever,
-- since the same authorization must never be used a second time. Its identity is that of the authorization: (network,
-- asset, payer, nonce). Transaction and log index are evidence, which a reorganisation may move.
--
--   (none) -> reserved -> settling -> settled
--             reserved -> (none)      released: no settle was sent
--                         settling -> refused | unknown
--                         unknown  -> settled | failed     as the chain tells
--                         refused  -> settled | failed     as the chain tells
--                         failed   -> settled              as the chain tells a day later
create table x402_payment (
  -- Made at random, so that no database ever gives it out twice: not even one that has lost its last commits.
  id uuid primary key default gen_random_uuid(),
  -- The order in which the payments of one payer became visible.
  position bigint generated always as identity,
  state text not null default 'reserved'
    check (state in ('reserved', 'settling', 'settled', 'refused', 'unknown', 'failed')),
  -- What the payment is for. A deposit is settled only when its transfer is two blocks deep.
  purpose text not null default 'speech' check (purpose in ('speech', 'deposit')),
  identifier text not null unique,
  -- SHA-256 of method, URL, body and payload: the request that the identifier belongs to.
  request_hash bytea not null,
  -- Network, asset, addresses and nonce in lower case.
  network text not null,
  asset text not null,
  payer text not null,
  nonce text not null,
  pay_to text not null,
  amount_micro_usd bigint not null check (amount_micro_usd > 0),
  -- Unix seconds, as signed.
  valid_before bigint not null,
  -- Where a search for the authorization on the chain begins.
  head_block bigint not null,
  -- Of the request that made the payment, and what it pays for; of a deposit there is no speech.
  trace_id uuid,
  model text,
  characters integer,
  upstream text,
  cost_pico_usd bigint,
  -- Raised when a reservation is taken over; whoever settles must name it.
  fence integer not null default 1,
  -- While a process is at it. It is renewed, so that it soon ends when the process dies.
  lease_until timestamptz,
  -- The reason of a refused settlement, as it is told again on each replay.
  refusal text,
  -- The transaction that may hold the transfer, while it is looked for or its depth is waited for.
  awaited_transaction text,
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
  -- When a failed payment is looked for on the chain once more; null once that was done.
  next_look_at timestamptz,
  constraint x402_payment_network_asset_payer_nonce_key unique (network, asset, payer, nonce),
  check ((state in ('reserved', 'settling')) = (lease_until is not null)),
  check ((state = 'reserved') = (settling_at is null)),
  check ((state = 'settled') = (settled_at is not null)),
  check ((state = 'settled') = (transaction_hash is not null and log_index is not null and receipt is not null)),
  check (state <> 'refused' or refusal is not null),
  -- A pattern that counts is slow: 20 microseconds for a hash, where this takes one.
  constraint x402_payment_transaction_hash check (length(transaction_hash) = 66 and transaction_hash ~ '^0x[0-9a-f]+$'),
  constraint x402_payment_lower_case check (
    network = lower(network) and asset = lower(asset) and payer = lower(payer) and pay_to = lower(pay_to)
    and nonce = lower(nonce)
  )
);
create index x402_payment_unfinished on x402_payment (checked_at nulls first)
  where state in ('reserved', 'settling', 'refused', 'unknown');
create index x402_payment_payer_open on x402_payment (payer, position)
  where state in ('reserved', 'settling', 'refused', 'unknown');
create index x402_payment_payer_failed on x402_payment (payer, failed_at) where failed_at is not null;
create index x402_payment_next_look on x402_payment (next_look_at) where state = 'failed' and next_look_at is not null;
-- What a payer has under way before one payment of theirs (R21b). It is asked for in the statement that reserves the
-- payment, behind the lock that keeps the payer's reservations in order; that statement's own snapshot is older than the
-- lock. A volatile function sees what was committed by the time of its call.
create function x402_exposure(of_payer text, before_position bigint)
  returns table (unsettled bigint, running bigint, settling bigint, failed boolean) volatile language plpgsql as $$
begin
  return query
    select coalesce(sum(amount_micro_usd) filter (where awaited_transaction is null), 0)::bigint,
           count(*) filter (where state in ('reserved', 'settling')),
           count(*) filter (where state = 'settling' and awaited_transaction is null),
           exists (select from x402_payment where payer = of_payer and failed_at > now() - interval '1 hour'
                     and refusal is distinct from 'facilitator_lacks_gas')
    from x402_payment
    where payer = of_payer and position < before_position and state in ('reserved', 'settling', 'refused', 'unknown');
end $$;

-- No payment of another network or asset enters, and none changes over. The first payment decides where nothing has.
create function x402_payment_belongs() returns trigger language plpgsql as $$
begin
  if exists (select from instance where (network, asset) = (new.network, new.asset)) then
    return new;
  end if;
  update instance set network = new.network, asset = new.asset where network is null;
  if not exists (select from instance where (network, asset) = (new.network, new.asset)) then
    raise exception 'a payment of % and % does not belong to this database', new.network, new.asset;
  end if;
  return new;
end $$;
create trigger x402_payment_belongs before insert on x402_payment
  for each row execute function x402_payment_belongs();
create trigger x402_payment_belongs_still after update of network, asset on x402_payment
  for each row execute function x402_payment_belongs();

create trigger x402_payment_terms after update of id, position, identifier, request_hash, network, asset, payer, nonce,
  pay_to, amount_micro_usd, valid_before, purpose, created_at, trace_id, model, characters on x402_payment for each row
  execute function refuse_change('what a payment promises never changes');
create trigger x402_payment_settled after update of state, fence, head_block, lease_until, refusal, transaction_hash,
  log_index, receipt, settling_at, failed_at, settled_at, upstream, cost_pico_usd on x402_payment for each row
  when (old.state = 'settled')
  execute function refuse_change('a payment that is settled never changes');
create trigger x402_payment_sent after update of state on x402_payment for each row
  when (old.state <> 'reserved' and new.state = 'reserved')
  execute function refuse_change('a payment that may have been sent is no reservation again');
create trigger x402_payment_lease after insert or update of lease_until, checked_at on x402_payment for each row
  when (new.lease_until > now() + interval '1 day' or new.checked_at > clock_timestamp())
  execute function refuse_change('the lease of a payment ends within a day, and no check lies ahead');
create trigger x402_payment_kept before delete on x402_payment for each row when (old.state <> 'reserved')
  execute function refuse_change('a payment that may have been sent is never deleted');
create trigger x402_payment_kept_all before truncate on x402_payment
  execute function refuse_change('a payment that may have been sent is never deleted');
