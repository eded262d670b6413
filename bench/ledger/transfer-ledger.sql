-- A ledger of the shape that pgledger has published (github.com/pgr0ss/pgledger, which names no licence), in words of our
-- own: a transfer locks both accounts in the order of their ids, moves the two balances, and writes the transfer and an
-- entry for each account with the balance before and after and the account's version. Ids are text with a prefix.
create table account (
  id text primary key,
  balance numeric not null default 0,
  version bigint not null default 0,
  updated_at timestamptz not null default now()
);

create table transfer (
  id text primary key default 'tr_' || uuidv7(),
  from_account_id text not null references account,
  to_account_id text not null references account,
  amount numeric not null check (amount > 0),
  created_at timestamptz not null default now(),
  event_at timestamptz not null default now(),
  check (from_account_id <> to_account_id)
);
create index on transfer (from_account_id);
create index on transfer (to_account_id);
create index on transfer (event_at);

create table entry (
  id text primary key default 'en_' || uuidv7(),
  account_id text not null references account,
  transfer_id text not null references transfer,
  amount numeric not null,
  balance_before numeric not null,
  balance_after numeric not null,
  account_version bigint not null,
  created_at timestamptz not null default now()
);
create index on entry (account_id);
create index on entry (transfer_id);

insert into account (id) select 'account_' || number from generate_series(1, 50) number;

create function move(payer text, payee text, moved numeric) returns text language plpgsql as $$
declare
  made text;
  debited account;
  credited account;
begin
  perform from account where id = least(payer, payee) for update;
  perform from account where id = greatest(payer, payee) for update;
  update account set balance = balance - moved, version = version + 1, updated_at = now()
    where id = payer returning * into debited;
  update account set balance = balance + moved, version = version + 1, updated_at = now()
    where id = payee returning * into credited;
  insert into transfer (from_account_id, to_account_id, amount) values (payer, payee, moved) returning id into made;
  insert into entry (account_id, transfer_id, amount, balance_before, balance_after, account_version)
    values (payer, made, -moved, debited.balance + moved, debited.balance, debited.version);
  insert into entry (account_id, transfer_id, amount, balance_before, balance_after, account_version)
    values (payee, made, moved, credited.balance - moved, credited.balance, credited.version);
  return made;
end
$$;
