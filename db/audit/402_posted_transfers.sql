-- only charges and spends can be pending; all other transfers are posted when created
select id, kind, state, amount_micro_usd as amount from transfer
where kind not in ('charge', 'spend')
  and (state <> 'posted' or ended_at <> created_at or lease_until is not null);
