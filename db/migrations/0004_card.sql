-- Purchases of card credit, and what the card processor took back of them.

-- A purchase of credit. The row exists before the processor is called, and its id is the call's idempotency key.
create table top_up (
  id uuid primary key default gen_random_uuid(),
  state text not null default 'opening' check (state in ('opening', 'open', 'credited', 'expired')),
  -- The account comes into being with its first credit.
  account_id uuid not null,
  amount_cents integer not null check (amount_cents > 0),
  challenge_id text,
  session_id text unique,
  -- By which the refunds and disputes of a purchase name it.
  payment_intent_id text,
  created_at timestamptz not null default now(),
  credited_at timestamptz,
  -- When the processor is next asked for an open purchase's session; the older the purchase, the rarer.
  next_check_at timestamptz not null default now(),
  -- A purchase whose session never came to be known ends too.
  constraint top_up_session_known check (state in ('opening', 'expired') or session_id is not null),
  check ((state = 'credited') = (credited_at is not null))
);
create index top_up_opening on top_up (created_at) where state = 'opening';
create index top_up_next_check on top_up (next_check_at) where state = 'open';
create index top_up_expired on top_up (created_at) where state = 'expired';
create index top_up_payment_intent on top_up (payment_intent_id) where payment_intent_id is not null;
create index top_up_account on top_up (account_id);

create trigger top_up_terms after update of id, account_id, challenge_id on top_up for each row
  execute function refuse_change('a purchase stays that of its account');
create trigger top_up_credited after update on top_up for each row when (old.state = 'credited')
  execute function refuse_change('a purchase that is credited never changes');
create trigger top_up_check after insert or update of next_check_at on top_up for each row
  when (new.next_check_at > now() + interval '5 days')
  execute function refuse_change('a purchase is looked at within 5 days');
create trigger top_up_kept before delete on top_up for each row when (old.state = 'credited')
  execute function refuse_change('a purchase that is credited is never deleted');
create trigger top_up_kept_all before truncate on top_up
  execute function refuse_change('a purchase that is credited is never deleted');

-- A refund or a dispute by the processor's own id, as it was read last. Each time that it is taken from the account, and
-- each time that it is returned, one transfer names it.
--
--     none -- the processor has taken the money --> taken -- it gave the money back --> returned -- taken again --> taken
create table clawback (
  id text primary key,
  kind text not null check (kind in ('refund', 'dispute')),
  top_up_id uuid not null,
  account_id uuid not null,
  charge_id text,
  amount_cents integer not null check (amount_cents > 0),
  -- Of the amount, as the processor names it. What is in another one than USD is not booked.
  currency text not null default 'usd',
  -- The processor's word; whether this service knows it. Where not, what its balance transactions tell is booked.
  status text not null,
  is_status_known boolean not null default true,
  state text not null default 'none' check (state in ('none', 'taken', 'returned')),
  -- How often it was taken.
  turns integer not null default 0,
  -- The processor's time.
  created_at timestamptz not null,
  -- When the processor is next asked for it; null once nothing can change any more.
  next_check_at timestamptz,
  -- Raised by whoever asks the processor: an answer to an earlier question changes nothing.
  fence integer not null default 0,
  check ((state = 'none') = (turns = 0))
);
create index clawback_next_check on clawback (next_check_at) where next_check_at is not null;
create index clawback_account on clawback (account_id);

create trigger clawback_terms after update of id, kind, top_up_id, account_id, charge_id, amount_cents, currency, created_at
  on clawback for each row execute function refuse_change('a refund or dispute stays that of its purchase');
create trigger clawback_check after insert or update of next_check_at on clawback for each row
  when (new.next_check_at > now() + interval '5 days')
  execute function refuse_change('a refund or dispute is looked at within 5 days');
create trigger clawback_kept before delete on clawback for each row
  execute function refuse_change('a refund or dispute is never deleted');
create trigger clawback_kept_all before truncate on clawback
  execute function refuse_change('a refund or dispute is never deleted');

-- How far each list of the processor has been read. It is part of every backup, so that a restored database makes up for
-- all that was paid since.
create table processor_list (
  name text primary key check (name in ('sessions', 'refunds', 'disputes')),
  -- What was created before this moment has been read since its time ran out.
  read_until timestamptz not null,
  -- The pass under way: when it began, and the last entry that it has read, from the newest backwards.
  pass_started_at timestamptz,
  pass_cursor text,
  check (pass_cursor is null or pass_started_at is not null)
);
insert into processor_list (name, read_until) values
  ('sessions', now() - interval '25 hours'), ('refunds', now() - interval '1 hour'), ('disputes', now() - interval '1 hour');
-- A statement that has waited for another one sees what that one wrote at a time later than its own beginning.
create trigger processor_list_read after update of read_until, pass_started_at on processor_list for each row
  when (new.read_until > clock_timestamp() or new.pass_started_at > clock_timestamp())
  execute function refuse_change('no list is read ahead of the time');
