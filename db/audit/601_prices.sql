-- each charge names its number of characters, and equals their price
with begun as (
  -- During a rollout, processes of the previous release still charge without naming the characters.
  select min(created_at) + interval '24 hours' as at from transfer
  where characters is not null
)
select id, kind, amount_micro_usd as amount, characters, rate_pico_usd as rate, created_at from transfer, begun
where kind in ('charge', 'spend')
  and (amount_micro_usd <> ceil(characters::numeric * rate_pico_usd / 1000000)
       or rate_pico_usd is null and characters is not null and kind = 'charge'
       or characters is null and created_at > begun.at);
