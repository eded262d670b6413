-- Prepaid balances: wallets that are credited by deposits in USDC and debited against signatures.

insert into account (id, kind, contra_name) values
  ('00000000-0000-4000-8000-000000000005', 'contra', 'prepaid_revenue');

alter table account drop constraint account_kind_check;
alter table account
  add constraint account_kind_check check (kind in ('card', 'wallet', 'contra')),
  -- The payer's EVM address in lower case; it comes into being with the first deposit.
  add column address text unique check (address ~ '^0x[0-9a-f]{40}$'),
  add constraint account_wallet_check check ((kind = 'wallet') = (address is not null));

-- The reference of a deposit is the id of its payment, that of a spend its nonce.
alter table transfer drop constraint transfer_kind_check, drop constraint transfer_reference_check;
alter table transfer
  add constraint transfer_kind_check check (kind in ('top_up', 'charge', 'settlement', 'deposit', 'spend')),
  add constraint transfer_reference_check check ((kind <> 'charge') = (reference is not null));
create unique index transfer_deposit on transfer (reference) where kind = 'deposit';

-- The nonces that were spent: one row for each debit of a wallet, whatever became of the debit. Kept for a day at least.
create table prepaid_nonce (
  account_id uuid not null,
  nonce text not null,
  spent_at timestamptz not null default now(),
  primary key (account_id, nonce)
);
create index prepaid_nonce_spent_at on prepaid_nonce (spent_at);

-- What a payment is for. A deposit is settled only when its transfer is two blocks deep.
alter table x402_payment
  add column purpose text not null default 'speech' check (purpose in ('speech', 'deposit')),
  -- The transaction that the facilitator named, while its depth is waited for.
  add column awaited_transaction text;
