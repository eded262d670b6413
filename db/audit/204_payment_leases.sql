-- each USDC payment in progress has an unexpired lease
select id, state, amount_micro_usd as amount, created_at, lease_until from x402_payment
where state in ('reserved', 'settling')
  and lease_until < now() - interval '120 seconds';
