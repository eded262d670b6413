import type { Desk } from './desk.ts';
import type { Rule } from './rule.ts';

/** The flows that spend a balance. */
export const SPEECH = `('card', 'card, streamed', 'job', 'prepaid')`;

/**
 * A process tells about once a second what it has delivered, and later where it is slow or its database away. When it dies
 * before, others give that back too, half a minute later: who was served in its last seconds has it for nothing. What
 * comes to its caller after that is of a process that was taken for dead.
 */
const UNTOLD_SECONDS = 10;
const BURIED_AFTER_SECONDS = 15;
/** Half a minute of silence, and as long as others may be kept from looking by what breaks then. */
const BURIED_WITHIN_SECONDS = 180;
/** The death of the gateway that had answered, for which the charge was given back, and how far from the answer it was. */
const DEATH = `
  select min(greatest(death.begun_at - at, at - death.ended_at, 0)) as seconds
  from death
  where gateway = served_by and given_back = 'process_died' and given_back_at > at + ${BURIED_AFTER_SECONDS}
    and at between death.begun_at - ${UNTOLD_SECONDS} and death.ended_at + ${UNTOLD_SECONDS}
    and given_back_at between death.begun_at and death.ended_at + ${BURIED_WITHIN_SECONDS}`;

/**
 * Finds the operation of each charge: `matched`, by trace id, nonce or job; and where the caller was told nothing, by
 * payer and amount among the operations of whose end nothing is known. `tally` counts for each operation what is charged
 * in the end, and what was given back since the process died that had answered.
 */
export async function matchCharges(desk: Desk): Promise<void> {
  await desk.query(`
    create temp table charged as
    select transfer.id, coalesce(account.address, account.id::text) as payer, transfer.kind,
           amount_micro_usd as amount, transfer.trace_id::text as trace_id, reversal.reason as given_back,
           extract(epoch from reversal.created_at)::double precision as given_back_at
    from transfer join account on account.id = debit_account_id
      left join reversal on reversal.transfer_id = transfer.id
    where transfer.kind in ('charge', 'spend') and transfer.state = 'posted'`);
  await desk.query('create index on pg_temp.charged (id)');
  await desk.query('create index on pg_temp.charged (trace_id)');
  await desk.query('analyze pg_temp.charged');
  await desk.query(`
    create temp table matched as
    select told.id as told, charged.id as charge
    from told join told_trace on told_trace.told = told.id join charged using (trace_id)
    where told.payer = charged.payer
    union
    select told.id, charged.id
    from told join account on account.address = told.payer
      join prepaid_nonce on account_id = account.id and prepaid_nonce.nonce = told.nonce
      join charged on charged.id = prepaid_nonce.hold_id
    where flow = 'prepaid'
    union
    select told.id, charged.id
    from told join job on job.id::text = told.job_id join charged on charged.id = job.hold_id`);
  await desk.query(`
    insert into pg_temp.matched
    with lost as (
      select id, payer, amount, row_number() over (partition by payer, amount order by id) as place
      from charged where given_back is null and not exists (select from matched where charge = charged.id)
    ), doubtful as (
      select id, payer, amount, row_number() over (partition by payer, amount order by id) as place
      from told where flow in ${SPEECH} and ended in ('left', 'open')
        and not exists (select from matched where told = told.id)
    )
    select doubtful.id, lost.id from lost join doubtful using (payer, amount, place)`);
  await desk.query(`
    create temp table tally as
    select told.id as told, count(*) filter (where charged.id is not null and given_back is null) as charges,
           count(died.seconds) as spared, max(died.seconds) as spared_by_seconds,
           coalesce(sum(charged.amount) filter (where given_back is null), 0)::bigint as amount
    from told left join matched on told = told.id left join charged on charged.id = charge
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
    words: 'the audio came, and nothing is charged or was given back for a dead process',
    sql: `select told, (select string_agg(given_back || ' ' || round((given_back_at - at)::numeric, 1) || ' s later', ', ')
                        from matched join charged on charged.id = charge where matched.told = tally.told) as detail
          ${OF} ended = 'served' and charges = 0 and spared = 0`,
  },
  {
    kind: 'paid, not served',
    words: 'it was told that nothing is charged, or nothing was told, and it is charged',
    sql: `select told, ended as detail ${OF} ended in ('refused', 'open') and charges > 0`,
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
          from charged where given_back is null and not exists (select from matched where charge = charged.id)`,
  },
  {
    kind: 'other',
    words: 'a job of which the audio or the end was told is not completed',
    sql: `select told.id as told, job.state as detail from told left join job on job.id::text = job_id
          where flow = 'job' and ended = 'served' and job.state is distinct from 'completed'`,
  },
];
