-- transfers are dated in the order of booking, and none is in the future
select id, kind, created_at, ended_at, latest_before from (
  select id, kind, created_at, ended_at,
         max(created_at) over (order by position rows between unbounded preceding and 1 preceding) as latest_before
  from transfer
) entry
where created_at > now() + interval '1 minute' or ended_at > now() + interval '1 minute' or ended_at < created_at
   or created_at < latest_before - interval '1 hour';
