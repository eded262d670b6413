-- Refunds and disputes of which it is not certain what they took.

alter table clawback
  -- Of the amount, as the processor names it. What is in another one than USD is not booked.
  add column currency text not null default 'usd',
  -- False when the release that read it last did not know its status, and booked what its balance transactions tell.
  add column is_status_known boolean not null default true;

drop trigger clawback_terms on clawback;
create trigger clawback_terms after update of id, kind, top_up_id, account_id, charge_id, amount_cents, currency, created_at
  on clawback for each row execute function refuse_change('a refund or dispute stays that of its purchase');
