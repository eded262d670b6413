import { sql } from 'kysely';
import type { Database } from '../../../../src/db/database.ts';
import { contra } from '../../../../src/ledger/transfer.ts';
import { inChunks, numbers, type Progress } from './chunks.ts';
import { ASSET, anyOf, NETWORK, PAY_TO, RATE_PICO_USD } from './names.ts';
import type { FillSizes } from './sizes.ts';

/** Longer than any run. */
const LASTS = sql`now() + interval '23 hours'`;
/**
 * Not later than the longest delay of a retry: the service runs jobs that are due later at once, as after a clock step.
 */
const DUE = sql`now() + interval '14 minutes'`;

/** Queued jobs with their holds and their queue entries. */
export async function fillUnderWay(db: Database, sizes: FillSizes, progress: Progress): Promise<void> {
  const { accounts, queuedJobs } = sizes;
  await inChunks(
    db,
    { what: 'queued jobs', count: queuedJobs },
    (from, to) => sql`
      with held as (
        insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd,
                              characters, rate_pico_usd, trace_id)
        select 'charge', 'pending', growth.card(${anyOf(accounts / 2, sql`n`)}), ${contra.cardRevenue}::uuid, 198,
               11, ${RATE_PICO_USD}::bigint, gen_random_uuid()
        from ${numbers(from, to)}
        returning id, debit_account_id, trace_id
      ), queued as (
        insert into job (account_id, hold_id, trace_id, text, model, voice, speed, store_audio, run_at)
        select debit_account_id, id, trace_id, 'Hello world', 'tts-1', 'alloy', 1, true, ${DUE} from held
        returning id, run_at, turn
      )
      select count(graphile_worker.add_job(
        'speak', json_build_object('jobId', id), run_at => run_at, job_key => id::text, priority => turn)) from queued`,
    progress,
  );
}

/** Rows without money: failed payments, unpaid purchases, rate-limit windows, feedback. */
export async function fillBeside(db: Database, sizes: FillSizes, progress: Progress): Promise<void> {
  const { accounts, days, failedPayments, expiredPurchases, openPurchases, windows, feedback } = sizes;
  const over = (count: number) =>
    sql`now() - make_interval(secs => ${days * 86_400}::int - n * ${days * 86_400 - 7200}::double precision / ${count}::int)`;
  await inChunks(
    db,
    { what: 'failed payments', count: failedPayments },
    (from, to) => sql`
      insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                                valid_before, head_block, refusal, created_at, settling_at, failed_at, trace_id)
      select 'failed', 'failed_' || n, sha256(convert_to('failed' || n, 'UTF8')), ${NETWORK}, ${ASSET},
             growth.address(${anyOf(accounts / 2, sql`n`)}), growth.word(-n), ${PAY_TO}, 198,
             extract(epoch from at)::bigint, 1, 'insufficient_funds', at, at, at, gen_random_uuid()
      from ${numbers(from, to)}, lateral (select ${over(failedPayments)} as at) moment`,
    progress,
  );
  await inChunks(
    db,
    { what: 'expired purchases', count: expiredPurchases },
    (from, to) => sql`
      insert into top_up (state, account_id, amount_cents, session_id, created_at)
      select 'expired', gen_random_uuid(), 500, 'cs_test_expired_' || n, ${over(expiredPurchases)} from ${numbers(from, to)}`,
    progress,
  );
  await inChunks(
    db,
    { what: 'open purchases', count: openPurchases },
    (from, to) => sql`
      insert into top_up (state, account_id, amount_cents, session_id, created_at, next_check_at)
      select 'open', gen_random_uuid(), 500, 'cs_test_open_' || n, now() - interval '2 hours', ${LASTS}
      from ${numbers(from, to)}`,
    progress,
  );
  await inChunks(
    db,
    { what: 'rate windows', count: windows },
    (from, to) => sql`
      insert into rate_window (key, scope, checked_at, allowed, taken)
      select sha256(convert_to('window ' || n, 'UTF8')), 'ip', ${LASTS}, true, array[${LASTS}] from ${numbers(from, to)}`,
    progress,
  );
  await inChunks(
    db,
    { what: 'feedback', count: feedback },
    (from, to) => sql`
      insert into feedback (nonce, wallet, category, message, signing_message, signature, trace_id, received_at,
                            notification, mailed_at)
      select gen_random_uuid(), growth.address(${anyOf(accounts / 2, sql`n`)}), 'bug', repeat('It speaks too fast. ', 10),
             repeat('I have something to say. ', 10), repeat('a', 130), gen_random_uuid(), at, 'queued', at
      from ${numbers(from, to)}, lateral (select ${over(feedback)} as at) moment`,
    progress,
  );
}
