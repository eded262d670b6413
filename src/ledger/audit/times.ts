import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

const OUT_OF_ORDER_SECONDS = 3600;

export const timeInvariants: readonly Invariant[] = [
  {
    rule: 'no lease or scheduled check lies too far in the future',
    breaches: sql`
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
      select 'reconciler', name, started_at from reconciler where started_at > now() + interval '1 minute'`,
  },
  {
    rule: 'entries are dated in the order of the book, and none in the future',
    breaches: sql`
      select id, kind, created_at, ended_at, latest_before from (
        select id, kind, created_at, ended_at,
               max(created_at) over (order by position rows between unbounded preceding and 1 preceding) as latest_before
        from transfer
      ) entry
      where created_at > now() + interval '1 minute' or ended_at > now() + interval '1 minute' or ended_at < created_at
         or created_at < latest_before - make_interval(secs => ${OUT_OF_ORDER_SECONDS})`,
  },
];
