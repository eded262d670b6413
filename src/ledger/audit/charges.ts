import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

/** While releases change, processes of the former one still charge without telling for what. */
const ROLLOUT_HOURS = 24;

/** What charges and spends have paid for. */
export const chargeInvariants: readonly Invariant[] = [
  {
    rule: 'a charge is the price of the characters that it names, and names them',
    breaches: sql`
      with begun as (
        select min(created_at) + make_interval(hours => ${ROLLOUT_HOURS}::int) as at from transfer
        where characters is not null
      )
      select id, kind, amount_micro_usd as amount, characters, rate_pico_usd as rate, created_at from transfer, begun
      where kind in ('charge', 'spend')
        and (amount_micro_usd <> ceil(characters::numeric * rate_pico_usd / 1000000)
             or rate_pico_usd is null and characters is not null and kind = 'charge'
             or characters is null and created_at > begun.at)`,
  },
  {
    rule: "a job's hold was placed by the request that made the job",
    breaches: sql`
      select job.id, job.hold_id, job.trace_id, transfer.trace_id as hold_trace_id
      from job join transfer on transfer.id = job.hold_id
      where transfer.trace_id <> job.trace_id`,
  },
];
