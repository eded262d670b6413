-- Whose money this database holds: USDC of one network and asset, and card credit of the processor's test or live mode.

-- The database belongs to the network and asset that it was first used with, for ever.
alter table instance
  add column network text,
  -- The token's address in lower case.
  add column asset text,
  -- The mode of card accounts that are older than account.livemode; null until a first key tells it.
  add column card_livemode boolean,
  add constraint instance_network_check check ((network is null) = (asset is null) and asset = lower(asset));

-- Of a database that has payments: those of the newest one, which was made with the settings in force.
update instance set (network, asset) = (select network, asset from x402_payment order by id desc limit 1);

create function instance_keeps_network() returns trigger language plpgsql as $$
begin
  if old.network is not null and (new.network, new.asset) is distinct from (old.network, old.asset) then
    raise exception 'this database belongs to % and %, for ever', old.network, old.asset;
  end if;
  return new;
end $$;
create trigger instance_keeps_network before update of network, asset on instance
  for each row execute function instance_keeps_network();

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

-- A card account belongs to the mode of the key that it was first credited with. The accounts that exist are not
-- rewritten: when the ids of all sessions name one mode, instance holds it for them. Else the accounts of the rarer kind
-- name their own; one that was paid for once is live. All of this is read before anything is locked.
with purchase as (
  select bool_or(session_id like 'cs\_live\_%') as any_live,
         bool_or(session_id not like 'cs\_live\_%' and session_id not like 'cs\_test\_%') as any_unknown
  from top_up where state = 'credited'
)
update instance set card_livemode = any_live from purchase where not any_unknown;
create temporary table deviating on commit drop as
select account_id, any_live
from instance, lateral (
  select account_id, bool_or(session_id like 'cs\_live\_%') as any_live, bool_and(session_id like 'cs\_test\_%') as all_test
  from top_up where state = 'credited' group by account_id
) purchase
where (any_live or all_test) and any_live is distinct from card_livemode;

-- A failed payment is looked for on the chain once more, a day after its failure: until then the verdict is not final.
--
--     failed   -> settled     as the chain tells a day later
alter table x402_payment
  -- When that is due; null once it was done.
  add column next_look_at timestamptz;
update x402_payment set next_look_at = now() where state = 'failed';
create index x402_payment_next_look on x402_payment (next_look_at) where state = 'failed' and next_look_at is not null;
create trigger x402_payment_belongs before insert on x402_payment
  for each row execute function x402_payment_belongs();
create trigger x402_payment_belongs_still after update of network, asset on x402_payment
  for each row execute function x402_payment_belongs();

alter table account
  add column livemode boolean,
  add constraint account_livemode_check check (kind = 'card' or livemode is null) not valid;
update account set livemode = any_live from deviating where account.id = deviating.account_id;
create trigger account_mode after update of livemode on account for each row
  when (old.livemode is not null and new.livemode is distinct from old.livemode)
  execute function refuse_change('an account keeps its mode');
