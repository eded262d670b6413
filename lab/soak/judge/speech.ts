import type { Desk } from './desk.ts';
import type { Rule } from './rule.ts';

/** Flows that spend a balance. */
export const SPEECH = `('card', 'card, streamed', 'job', 'prepaid')`;

/**
 * A hold is captured after delivery. If the process dies or freezes in between, the lease expires and the hold is
 * voided, so a response delivered at that moment is free. While the database is unavailable the service retries the
 * capture; on a connection that died silently it waits for the statement's timeout of 12 s first. If PostgreSQL dies, it
 * may have lost a hold that was not captured.
 */
export const MOMENT_SECONDS = 15;
/** Time between a response whose hold was voided or lost and the death of its gateway or of the database. */
const DEATH = `
  select min(greatest(death.begun_at - at, at - death.ended_at, 0)) as seconds
  from death
  where (gateway = served_by and not is_charged or gateway = 'postgres' and is_charged is null)
    and at between death.begun_at - ${MOMENT_SECONDS} and death.ended_at + ${MOMENT_SECONDS}`;

/**
 * Creates `matched`, the operation of each charge: by trace id, nonce or job. For callers without a final response it
 * uses payer and amount, and takes the last operation that started before the hold. Creates `tally`: for each
 * operation, its charges, and its voids and lost holds that a killed or frozen process explains.
 */
export async function matchCharges(desk: Desk): Promise<void> {
  await desk.query(`
    create temp table held as
    select transfer.id, coalesce(account.address, account.id::text) as payer, transfer.kind,
           amount_micro_usd as amount, transfer.trace_id::text as trace_id,
           transfer.state = 'posted' as is_charged, extract(epoch from ended_at)::double precision as ended_at,
           extract(epoch from transfer.created_at)::double precision as created_at
    from transfer join account on account.id = debit_account_id
    where transfer.kind in ('charge', 'spend') and transfer.state <> 'pending'`);
  await desk.query('create index on pg_temp.held (id)');
  await desk.query('create index on pg_temp.held (trace_id)');
  await desk.query('analyze pg_temp.held');
  await desk.query(`
    create temp table matched as
    select told.id as told, held.id as charge
    from told join told_trace on told_trace.told = told.id join held using (trace_id)
    where told.payer = held.payer
    union
    select told.id, held.id
    from told join account on account.address = told.payer
      join prepaid_nonce on account_id = account.id and prepaid_nonce.nonce = told.nonce
      join held on held.id = prepaid_nonce.hold_id
    where flow = 'prepaid'
    union
    select told.id, held.id
    from told join job on job.id::text = told.job_id join held on held.id = job.hold_id`);
  // One after the other, so that no two charges take the same operation.
  await desk.query(`
    do $$
    declare lost record;
    begin
      for lost in
        select * from held where is_charged and not exists (select from matched where charge = held.id) order by created_at
      loop
        insert into pg_temp.matched
        select told.id, lost.id from told
        where told.payer = lost.payer and told.amount = lost.amount
          and flow in ${SPEECH} and ended in ('left', 'broken off', 'open')
          and at - (told.ended_at - begun_at) / 1000 <= lost.created_at
          and not exists (select from matched where matched.told = told.id)
        order by begun_at desc limit 1;
      end loop;
    end $$`);
  await desk.query(`
    create temp table tally as
    select told.id as told, count(*) filter (where is_charged) as charges,
           count(died.seconds) as spared, max(died.seconds) as spared_by_seconds,
           coalesce(sum(held.amount) filter (where is_charged), 0)::bigint as amount
    from told left join matched on told = told.id left join held on held.id = charge
      left join lateral (${DEATH}) died on true
    where flow in ${SPEECH} group by told.id`);
  await desk.query('create index on pg_temp.tally (told)');
}

const OF = 'from tally join told on told.id = tally.told where';

export const SPEECH_RULES: readonly Rule[] = [
  {
    kind: 'charged twice',
    words: 'one operation was charged more than once',
    sql: `select told, charges || ' charges' as detail ${OF} charges > 1`,
  },
  {
    kind: 'served, not paid',
    words: 'the audio came, and nothing is charged, although its process was neither killed nor frozen',
    sql: `select told, (select string_agg('voided ' || round((held.ended_at - at)::numeric, 1) || ' s later', ', ')
                        from matched join held on held.id = charge where matched.told = tally.told) as detail
          ${OF} ended = 'served' and charges = 0 and spared = 0`,
  },
  {
    kind: 'paid, not served',
    words: 'the answer was an error, or broke off, or nothing was told, and it is charged',
    sql: `select told, ended as detail ${OF} ended in ('refused', 'broken off', 'open') and charges > 0`,
  },
  {
    kind: 'other',
    words: 'another amount is charged than the price',
    sql: `select told, tally.amount || ' instead of ' || told.amount as detail
          ${OF} charges = 1 and tally.amount <> told.amount`,
  },
  {
    kind: 'paid, not served',
    words: 'a charge belongs to no operation',
    sql: `select null::integer as told, 'transfer ' || id || ' of ' || amount || ' micro-USD, trace ' || trace_id as detail
          from held where is_charged and not exists (select from matched where charge = held.id)`,
  },
  {
    kind: 'other',
    words: 'a job of which the audio or the end was told is not completed',
    sql: `select told.id as told, job.state as detail from told left join job on job.id::text = job_id
          where flow = 'job' and ended = 'served' and job.state is distinct from 'completed'`,
  },
];
