-- no lease or scheduled check is too far in the future
select 'hold' as what, id::text, lease_until as at from transfer
where state = 'pending' and lease_until > now() + interval '25 hours'
union all
select 'payment', id::text, greatest(lease_until, checked_at) from x402_payment
where lease_until > now() + interval '25 hours' or checked_at > now() + interval '1 minute'
union all
select 'purchase', id::text, next_check_at from top_up
where state = 'open' and next_check_at > now() + interval '121 hours'
union all
select 'job', id::text, greatest(lease_until, run_at) from job
where state in ('queued', 'processing') and greatest(lease_until, run_at) > now() + interval '25 hours'
union all
select 'refund or dispute', id, next_check_at from clawback where next_check_at > now() + interval '121 hours'
union all
select 'list of the processor', name, greatest(read_until, pass_started_at) from processor_list
where read_until > now() + interval '1 minute' or pass_started_at > now() + interval '1 minute'
union all
select 'reconciler', name, started_at from reconciler where started_at > now() + interval '1 minute';
