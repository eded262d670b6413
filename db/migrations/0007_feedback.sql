-- Feedback that wallets signed. The record is also the outbox: what is queued and has no mailed_at is still to be mailed.
create table feedback (
  id uuid primary key default gen_random_uuid(),
  -- Of the challenge that this feedback used up: a challenge is used once.
  nonce uuid not null unique,
  wallet text not null check (wallet ~ '^0x[0-9a-f]{40}$'),
  category text not null check (category in ('integration_blocker', 'bug', 'pricing', 'feature_request', 'other')),
  message text not null,
  details jsonb,
  -- What the wallet signed, and its signature, so that both can be checked at any time.
  signing_message text not null,
  signature text not null,
  trace_id uuid not null,
  received_at timestamptz not null,
  -- Whether mail was set up when the feedback arrived.
  notification text not null check (notification in ('queued', 'not_configured')),
  mailed_at timestamptz,
  check (mailed_at is null or notification = 'queued')
);
create index feedback_wallet on feedback (wallet, received_at);
create index feedback_received on feedback (received_at, id);
create index feedback_unmailed on feedback (id) where notification = 'queued' and mailed_at is null;
