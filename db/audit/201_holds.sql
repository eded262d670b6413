-- each pending hold has an unexpired lease or an unfinished job
select id, amount_micro_usd as amount, created_at, lease_until from transfer
where state = 'pending'
  and (lease_until < now() - interval '120 seconds'
       or lease_until is null and not exists (
         select from job where job.hold_id = transfer.id and job.state in ('queued', 'processing')));
