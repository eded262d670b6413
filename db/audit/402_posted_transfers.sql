-- top-ups, deposits, settlements, clawbacks and adjustments are posted when created
select id, kind, state, amount_micro_usd as amount from transfer
where kind not in ('charge', 'spend')
  and (state <> 'posted' or ended_at <> created_at or lease_until is not null);
