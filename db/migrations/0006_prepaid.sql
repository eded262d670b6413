-- Prepaid balances: wallets are credited by deposits in USDC and debited against signatures.

-- The nonces that were spent: one row for each debit of a wallet, whatever became of the debit. Kept for a day at least.
create table prepaid_nonce (
  account_id uuid not null,
  nonce text not null,
  spent_at timestamptz not null default now(),
  -- Which request spent it: 16 bytes of a SHA-256 of credential and request.
  request_digest bytea,
  -- The debit that was made for it. No foreign key: its check would lock the transfer.
  hold_id uuid not null,
  primary key (account_id, nonce)
);
create index prepaid_nonce_spent_at on prepaid_nonce (spent_at);

create trigger prepaid_nonce_terms after update on prepaid_nonce for each row
  execute function refuse_change('a spent nonce never changes');
create trigger prepaid_nonce_kept before delete on prepaid_nonce for each row
  when (old.spent_at > now() - interval '24 hours')
  execute function refuse_change('a spent nonce is kept for a day');
create trigger prepaid_nonce_kept_all before truncate on prepaid_nonce
  execute function refuse_change('a spent nonce is kept for a day');
