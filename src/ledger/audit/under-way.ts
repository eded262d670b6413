import { sql } from 'kysely';
import type { Invariant } from './invariant.ts';

/** A dead process's hold is voided by the reconciler some time after its lease has passed; later than this is a breach. */
const RECONCILER_GRACE_SECONDS = 120;

/** What is not at its end yet: holds, jobs and payments. All amounts are in micro-USD. */
export const underWayInvariants: readonly Invariant[] = [
  {
    rule: 'a hold has ended, is within its lease, or is owned by a live job',
    breaches: sql`
      select id, amount_micro_usd as amount, created_at, lease_until from transfer
      where state = 'pending'
        and (lease_until < now() - make_interval(secs => ${RECONCILER_GRACE_SECONDS})
             or lease_until is null and not exists (
               select from job where job.hold_id = transfer.id and job.state in ('queued', 'processing')))`,
  },
  {
    rule: "a job's hold is pending while it lives, posted when it is completed, voided when it failed, and has its fence",
    breaches: sql`
      select job.id, job.state, transfer.state as hold, job.fence, transfer.fence as hold_fence
      from job left join transfer on transfer.id = job.hold_id
      where job.fence is distinct from transfer.fence or transfer.lease_until is not null
         or transfer.debit_account_id is distinct from job.account_id
         or transfer.state is distinct from
            case job.state when 'completed' then 'posted' when 'failed' then 'voided' else 'pending' end`,
  },
  {
    rule: 'a job that has ended has no text (R18), and one that lives has',
    breaches: sql`
      select id, state from job where (state in ('completed', 'failed')) = (text is not null)`,
  },
  {
    rule: 'a payment under way is within its lease',
    breaches: sql`
      select id, state, amount_micro_usd as amount, created_at, lease_until from x402_payment
      where state in ('reserved', 'settling')
        and lease_until < now() - make_interval(secs => ${RECONCILER_GRACE_SECONDS})`,
  },
];
