-- PostgreSQL reads a check or a trigger's condition anew in every statement, also in those that change nothing that it
-- looks at. What a transfer must be when it is made is one function's work now, and is not asked again when it ends: its
-- terms never change. A function is read once per connection.

create function transfer_begins() returns trigger language plpgsql as $$
declare
  rule text;
begin
  if new.kind not in ('top_up', 'charge', 'settlement', 'deposit', 'spend', 'reversal') then
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

drop trigger transfer_begun on transfer;
create trigger transfer_begins before insert on transfer for each row execute function transfer_begins();
drop trigger transfer_lease on transfer;
create trigger transfer_lease after update of lease_until on transfer for each row
  when (new.lease_until > now() + interval '1 day')
  execute function refuse_change('the lease of a hold ends within a day');
alter table transfer drop constraint transfer_kind_check, drop constraint transfer_price;

-- A statement that has waited for another one sees what that one wrote at a time later than its own beginning.
drop trigger checkout_sweep_read on checkout_sweep;
create trigger checkout_sweep_read after update of read_until, pass_started_at on checkout_sweep for each row
  when (new.read_until > clock_timestamp() or new.pass_started_at > clock_timestamp())
  execute function refuse_change('no list is read ahead of the time');
drop trigger x402_payment_lease on x402_payment;
create trigger x402_payment_lease after insert or update of lease_until, checked_at on x402_payment for each row
  when (new.lease_until > now() + interval '1 day' or new.checked_at > clock_timestamp())
  execute function refuse_change('the lease of a payment ends within a day, and no check lies ahead');

-- Whether an account is of a mode of the card processor. One that is older than modes is of the mode that the instance
-- holds for such, or of the first key's; the instance is read for those only. Null asks for accounts of either mode.
create function card_livemode() returns boolean stable language sql as 'select card_livemode from instance';
create function is_of_mode(account_livemode boolean, wanted boolean) returns boolean stable language sql as
  'select wanted is null or coalesce(account_livemode, card_livemode(), wanted) = wanted';
