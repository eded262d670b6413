import { sql } from 'kysely';
import type { Database } from '../../../../src/db/database.ts';
import { contra } from '../../../../src/ledger/transfer.ts';
import { inChunks, numbers, type Progress } from './chunks.ts';
import { insertSettled, SETTLED_COLUMNS } from './funding.ts';
import { anyOf, RATE_PICO_USD } from './names.ts';
import type { FillSizes } from './sizes.ts';

/** One charge in this many is voided, as after a failure of the provider. */
const VOIDED_EVERY = 50;
/** Age of the newest request. */
const ENDED_SECONDS = 300;

/** Transfers of requests: all except funding and queued jobs. */
const requestsOf = ({ transfers, accounts, queuedJobs }: FillSizes): number => transfers - accounts - queuedJobs;

/**
 * Requests in order of time, from the second day until now. Card charges and wallet spends alternate.
 * Jobs and direct payments are spread among them. Old nonces are left out, as after their cleanup.
 */
export async function fillRequests(db: Database, sizes: FillSizes, progress: Progress): Promise<void> {
  const { accounts, payments, jobs, days, nonceHours } = sizes;
  const count = requestsOf(sizes);
  const seconds = (days - 1) * 86_400 - ENDED_SECONDS;
  const ofTwo = Math.floor(count / 2);
  /** True for `many` pairs, spread evenly over all. */
  const isOneOf = (many: number) =>
    sql`(pair * ${sql.lit(many)} / ${sql.lit(ofTwo)} > (pair - 1) * ${sql.lit(many)} / ${sql.lit(ofTwo)})`;
  await inChunks(
    db,
    { what: 'requests', count },
    (from, to) => sql`
      with request as materialized (
        select n, (n + 1) / 2 as pair, n % 2 = 0 as is_card, 11 + n % 500 as characters, gen_random_uuid() as trace_id,
               now() - make_interval(secs => ${seconds}::int + ${ENDED_SECONDS}::int - n * ${seconds}::double precision / ${count}::int) as at
        from ${numbers(from, to)}
      ), direct as (
        select *, growth.address(${anyOf(accounts / 2, sql`pair`)}) as payer, characters * 18 as amount,
               'speech' as purpose
        from request where not is_card and ${isOneOf(payments - accounts / 2)}
      ), payment as (
        ${insertSettled}
        select ${SETTLED_COLUMNS} from direct
        returning id, amount_micro_usd, settled_at, trace_id
      ), entry as (
        insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, fence, lease_until,
                              reference, created_at, ended_at, characters, rate_pico_usd, trace_id)
        select case when is_card then 'charge' else 'spend' end,
               case when pair % ${VOIDED_EVERY}::int = 0 then 'voided' else 'posted' end,
               case when is_card then growth.card(number) else growth.wallet(number) end,
               case when is_card then ${contra.cardRevenue}::uuid else ${contra.prepaidRevenue}::uuid end,
               characters * 18, case when is_job then 2 else 1 end,
               case when not is_job then at + interval '60 seconds' end,
               case when not is_card then 'nonce-' || md5(n::text) end, at, at + interval '1 second',
               characters, ${RATE_PICO_USD}::bigint, trace_id
        from request, lateral (
          select ${anyOf(accounts / 2, sql`pair`)} as number, is_card and ${isOneOf(jobs)} as is_job
        ) of_request
        where is_card or not ${isOneOf(payments - accounts / 2)}
        union all
        select 'settlement', 'posted', ${contra.usdcClearing}::uuid, ${contra.usdcRevenue}::uuid, amount_micro_usd, 1, null,
               id::text, settled_at, settled_at, null, null, trace_id
        from payment
        order by 9
        returning *
      ), nonce as (
        insert into prepaid_nonce (account_id, nonce, spent_at, hold_id)
        select debit_account_id, reference, created_at, id from entry
        where kind = 'spend' and created_at > now() - make_interval(hours => ${nonceHours}::int)
      )
      insert into job (state, account_id, hold_id, fence, trace_id, model, voice, speed, store_audio, idempotency_key,
                       request_hash, attempts, run_at, error_code, error_message, mime_type, size_bytes, audio_expires_at,
                       audio_deleted, created_at, updated_at, started_at, completed_at)
      select case state when 'posted' then 'completed' else 'failed' end, debit_account_id, id, fence, trace_id, 'tts-1',
             'alloy', 1, true, sha256(uuid_send(trace_id)), sha256(uuid_send(trace_id)), 1, created_at,
             case state when 'voided' then 'TTS_UNAVAILABLE' end, case state when 'voided' then 'The provider failed.' end,
             case state when 'posted' then 'audio/mpeg' end, case state when 'posted' then 24000 end,
             created_at + interval '7 days', created_at < now() - interval '7 days', created_at, ended_at, created_at, ended_at
      from entry where kind = 'charge' and lease_until is null`,
    progress,
  );
}
