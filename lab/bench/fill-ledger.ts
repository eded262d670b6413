import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';
import { claimInstance } from '../../src/ledger/database-identity.ts';
import { contra } from '../../src/ledger/transfer.ts';
import { unguarded } from '../../test/support/unguarded.ts';
import { progress } from '../figures.ts';

export interface FillSizes {
  /** Half of them card accounts, half wallets. */
  readonly accounts: number;
  /** All kinds together. At least two for each account. */
  readonly transfers: number;
  /** Settled payments in USDC: one deposit for each wallet, the others for speech. */
  readonly payments: number;
  readonly failedPayments: number;
  /** Jobs that have ended. */
  readonly jobs: number;
  /** Jobs that are due after the run. */
  readonly queuedJobs: number;
  readonly expiredPurchases: number;
  readonly openPurchases: number;
  readonly windows: number;
  readonly feedback: number;
  /** Age of the oldest nonce that is still stored. */
  readonly nonceHours: number;
}

/** @param transfers by default ten for each account */
export const sizesFor = (accounts: number, transfers = accounts * 10): FillSizes => ({
  accounts,
  transfers,
  payments: Math.floor(accounts * 0.9),
  failedPayments: Math.floor(accounts / 100),
  jobs: Math.floor(accounts / 10),
  queuedJobs: Math.floor(accounts / 2000),
  expiredPurchases: Math.floor(accounts / 10),
  openPurchases: Math.floor(accounts / 2000),
  windows: Math.floor(accounts / 10),
  feedback: Math.floor(accounts / 200),
  nonceHours: 25,
});

/** Ids of card accounts, and wallet addresses in lower case. */
interface Known {
  readonly cards?: readonly string[];
  readonly wallets?: readonly string[];
}

const NETWORK = 'eip155:8453';
const ASSET = '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913';
const PAY_TO = `0x${'c'.repeat(40)}`;
/** Initial funding of each account: more than all its charges. */
const FUNDING_CENTS = 500;
const DEPOSIT_MICRO_USD = 2_000_000;
/** Rate of the default model, in 10^-12 USD per character. */
const RATE_PICO_USD = 18_000_000;
/** Of history. Funding is on the first: card accounts in its first half, wallets in the second. */
const DAYS = 10;
const DAY_SECONDS = 86_400;
const HALF_DAY_SECONDS = DAY_SECONDS / 2;
/** Age of the newest request. */
const ENDED_SECONDS = 300;
/** One charge in this many is voided, as after a failure of the provider. */
const VOIDED_EVERY = 50;
const CHUNK = 100_000;

/** Longer than any run. */
const LASTS = sql`now() + interval '23 hours'`;
/** Not later than the longest delay of a retry: the service runs jobs that are due later at once, as after a clock step. */
const DUE = sql`now() + interval '14 minutes'`;

/**
 * Fills an empty, migrated database as the service would have left it. Balances equal the sums of their transfers, so
 * the audit finds nothing. Needs the owner's role, because it writes past dates. Runs VACUUM and ANALYZE at the end.
 * @param known names that callers use. They replace generated names, spread over all accounts.
 */
export async function fillLedger(db: Database, sizes: FillSizes, known: Known = {}): Promise<void> {
  await claimInstance(db, { denomination: { network: NETWORK, asset: ASSET }, livemode: false });
  await createNames(db, known, sizes.accounts / 2);
  for (const [what, count, statement] of [...fundings(sizes), requests(sizes), queuedJobs(sizes)]) {
    await inChunks(db, what, count, statement);
  }
  await sumBalances(db);
  for (const [what, count, statement] of [...accounts(sizes), ...rowsWithoutMoney(sizes)]) {
    await inChunks(db, what, count, statement);
  }
  await sql`drop schema growth cascade`.execute(db);
  progress('vacuum and analyze');
  await sql`vacuum (analyze)`.execute(db);
}

/** Ids of card accounts, spread over the whole ledger. */
export async function filledCards(db: Database, { accounts }: FillSizes, count: number): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select md5('card ' || (1 + (place - 1) * ${accounts / 2}::bigint / ${count}::bigint))::uuid as id
    from generate_series(1, ${count}::bigint) place`.execute(db);
  return rows.map(({ id }) => id);
}

type Statement = (numbers: RawBuilder<unknown>) => RawBuilder<unknown>;
type Fill = readonly [what: string, count: number, statement: Statement];

/** Runs a statement for the numbers 1 to `count` in chunks. Each chunk is a transaction that may write past dates. */
async function inChunks(db: Database, what: string, count: number, statement: Statement): Promise<void> {
  progress(`filling ${count.toLocaleString('en')} ${what}`);
  for (let from = 1; from <= count; from += CHUNK) {
    await unguarded(db, async (trx) => {
      // After a crash the fill starts again, so a commit need not wait for the disk.
      await sql`set local synchronous_commit = off`.execute(trx);
      const to = Math.min(from + CHUNK - 1, count);
      await statement(sql`generate_series(${from}::bigint, ${to}::bigint) n`).execute(trx);
    });
  }
}

/** Creates SQL functions that map a number to an account's name, so that statements need no table of names. */
async function createNames(db: Database, known: Known, countOfEach: number): Promise<void> {
  await sql`create schema growth`.execute(db);
  for (const kind of ['card', 'wallet'] as const) {
    const [table, names] = [sql.id('growth', `known_${kind}`), known[`${kind}s`] ?? []];
    await sql`create table ${table} (number bigint primary key, name text not null)`.execute(db);
    await sql`
      insert into ${table}
      select 1 + (place - 1) * ${countOfEach}::bigint / ${names.length}::bigint, name
      from unnest(${names}::text[]) with ordinality known (name, place)`.execute(db);
  }
  const functions = [
    sql`growth.word(n bigint) returns text stable language sql
      return '0x' || encode(sha256(convert_to(n::text, 'UTF8')), 'hex')`,
    sql`growth.card(n bigint) returns uuid stable language sql
      return coalesce((select name from growth.known_card where number = n), md5('card ' || n))::uuid`,
    sql`growth.wallet(n bigint) returns uuid stable language sql
      return md5('wallet ' || n)::uuid`,
    sql`growth.address(n bigint) returns text stable language sql
      return coalesce((select name from growth.known_wallet where number = n),
                      '0x' || left(encode(sha256(convert_to('address ' || n, 'UTF8')), 'hex'), 40))`,
  ];
  for (const each of functions) await sql`create function ${each}`.execute(db);
}

/** Maps n to a number from 1 to `count`, evenly distributed. */
const anyOf = (count: number, n: RawBuilder<unknown>) => sql`(1 + ${n} * 2654435761 % ${sql.lit(count)})`;

const DAYS_AGO = sql`now() - make_interval(days => ${sql.lit(DAYS)})`;
const onFirstDay = (after: number, count: number) =>
  sql`${DAYS_AGO} + make_interval(secs => ${after}::int + n * ${HALF_DAY_SECONDS}::double precision / ${count}::int)`;

/** The columns that SETTLED_COLUMNS fills. */
const insertSettled = sql`
  insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                            valid_before, head_block, transaction_hash, log_index, receipt, created_at, settling_at,
                            settled_at, purpose, trace_id)`;

/** Expects a row with `n`, `at`, `payer`, `amount`, `purpose` and `trace_id`. `purpose` and `n` identify a payment. */
const SETTLED_COLUMNS = sql`
  'settled', 'pay_' || md5(purpose || n), sha256(convert_to(purpose || n, 'UTF8')), ${NETWORK}, ${ASSET}, payer,
  growth.word(hashtextextended(purpose || n, 1)), ${PAY_TO}, amount, extract(epoch from at)::bigint + 300, n / 10,
  growth.word(hashtextextended(purpose || n, 2)), (n % 100)::int,
  translate(encode(convert_to(json_build_object(
    'success', true, 'transaction', growth.word(hashtextextended(purpose || n, 2)), 'network', ${NETWORK}::text,
    'payer', payer)::text, 'UTF8'), 'base64'), E'\n', ''),
  at, at, at, purpose, trace_id`;

const fundings = ({ accounts }: FillSizes): Fill[] => [
  [
    'purchases',
    accounts / 2,
    (numbers) => sql`
      with purchase as (
        insert into top_up (state, account_id, amount_cents, session_id, created_at, credited_at, next_check_at)
        select 'credited', growth.card(n), ${FUNDING_CENTS}::int, 'cs_test_' || md5(n::text), at, at, at
        from ${numbers}, lateral (select ${onFirstDay(0, accounts / 2)} as at) moment
        returning account_id, session_id, credited_at
      )
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at, ended_at)
      select 'top_up', 'posted', ${contra.cardClearing}::uuid, account_id, ${FUNDING_CENTS * 10_000}::bigint, session_id,
             credited_at, credited_at
      from purchase`,
  ],
  [
    'deposits',
    accounts / 2,
    (numbers) => sql`
      with deposit as (
        select n, ${onFirstDay(HALF_DAY_SECONDS, accounts / 2)} as at, growth.address(n) as payer,
               ${DEPOSIT_MICRO_USD}::bigint as amount, 'deposit' as purpose, gen_random_uuid() as trace_id
        from ${numbers}
      ), payment as (
        ${insertSettled}
        select ${SETTLED_COLUMNS} from deposit
        returning id, payer, amount_micro_usd, settled_at, trace_id
      )
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, trace_id,
                            created_at, ended_at)
      select 'deposit', 'posted', ${contra.usdcClearing}::uuid, growth.wallet(deposit.n), payment.amount_micro_usd,
             payment.id::text, payment.trace_id, settled_at, settled_at
      from payment join deposit on deposit.payer = payment.payer
      order by settled_at`,
  ],
];

/**
 * Requests in order of time, from the second day until now. Card charges and wallet spends alternate.
 * Jobs and direct payments are spread among them. Old nonces are left out, as after their cleanup.
 */
function requests({ transfers, accounts, queuedJobs, payments, jobs, nonceHours }: FillSizes): Fill {
  const count = transfers - accounts - queuedJobs;
  const seconds = (DAYS - 1) * DAY_SECONDS - ENDED_SECONDS;
  const pairs = sql.lit(Math.floor(count / 2));
  /** True for `many` pairs, spread evenly over all. */
  const isOneOf = (many: number) =>
    sql`(pair * ${sql.lit(many)} / ${pairs} > (pair - 1) * ${sql.lit(many)} / ${pairs})`;
  const age = sql`${seconds}::int + ${ENDED_SECONDS}::int - n * ${seconds}::double precision / ${count}::int`;
  return [
    'requests',
    count,
    (numbers) => sql`
      with request as materialized (
        select n, (n + 1) / 2 as pair, n % 2 = 0 as is_card, 11 + n % 500 as characters, gen_random_uuid() as trace_id,
               now() - make_interval(secs => ${age}) as at
        from ${numbers}
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
  ];
}

/** With their holds and their queue entries. */
const queuedJobs = ({ accounts, queuedJobs: count }: FillSizes): Fill => [
  'queued jobs',
  count,
  (numbers) => sql`
    with held as (
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd,
                            characters, rate_pico_usd, trace_id)
      select 'charge', 'pending', growth.card(${anyOf(accounts / 2, sql`n`)}), ${contra.cardRevenue}::uuid, 198,
             11, ${RATE_PICO_USD}::bigint, gen_random_uuid()
      from ${numbers}
      returning id, debit_account_id, trace_id
    ), queued as (
      insert into job (account_id, hold_id, trace_id, text, model, voice, speed, store_audio, run_at)
      select debit_account_id, id, trace_id, 'Hello world', 'tts-1', 'alloy', 1, true, ${DUE} from held
      returning id, run_at, turn
    )
    select count(graphile_worker.add_job(
      'speak', json_build_object('jobId', id), run_at => run_at, job_key => id::text, priority => turn)) from queued`,
];

/** The balance of each account, from its transfers. */
async function sumBalances(db: Database): Promise<void> {
  await db.connection().execute(async (session) => {
    await sql`set work_mem = '256MB'`.execute(session);
    await sql`
      create table growth.balance as
      select account_id, sum(amount)::bigint as amount from (
        select credit_account_id as account_id, amount_micro_usd as amount from transfer where state = 'posted'
        union all
        select debit_account_id, -amount_micro_usd from transfer where state <> 'voided'
      ) movement group by account_id`.execute(session);
    await sql`reset work_mem`.execute(session);
  });
  await sql`alter table growth.balance add primary key (account_id)`.execute(db);
  await sql`analyze growth.balance`.execute(db);
}

const accounts = ({ accounts: count }: FillSizes): Fill[] => [
  [
    'card accounts',
    count / 2,
    (numbers) => sql`
      insert into account (id, kind, livemode, balance_micro_usd, created_at)
      select growth.card(n), 'card', false, amount, ${DAYS_AGO}
      from ${numbers} join growth.balance on account_id = growth.card(n)`,
  ],
  [
    'wallets',
    count / 2,
    (numbers) => sql`
      insert into account (id, kind, address, balance_micro_usd, created_at)
      select growth.wallet(n), 'wallet', growth.address(n), amount, ${DAYS_AGO}
      from ${numbers} join growth.balance on account_id = growth.wallet(n)`,
  ],
];

function rowsWithoutMoney(sizes: FillSizes): Fill[] {
  const { accounts, failedPayments, expiredPurchases, openPurchases, windows, feedback } = sizes;
  const over = (count: number) =>
    sql`now() - make_interval(secs => ${DAYS * DAY_SECONDS}::int - n * ${DAYS * DAY_SECONDS - 7200}::double precision / ${count}::int)`;
  const payer = sql`growth.address(${anyOf(accounts / 2, sql`n`)})`;
  return [
    [
      'failed payments',
      failedPayments,
      (numbers) => sql`
        insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                                  valid_before, head_block, refusal, created_at, settling_at, failed_at, trace_id)
        select 'failed', 'failed_' || n, sha256(convert_to('failed' || n, 'UTF8')), ${NETWORK}, ${ASSET},
               ${payer}, growth.word(-n), ${PAY_TO}, 198,
               extract(epoch from at)::bigint, 1, 'insufficient_funds', at, at, at, gen_random_uuid()
        from ${numbers}, lateral (select ${over(failedPayments)} as at) moment`,
    ],
    [
      'expired purchases',
      expiredPurchases,
      (numbers) => sql`
        insert into top_up (state, account_id, amount_cents, session_id, created_at)
        select 'expired', gen_random_uuid(), 500, 'cs_test_expired_' || n, ${over(expiredPurchases)} from ${numbers}`,
    ],
    [
      'open purchases',
      openPurchases,
      (numbers) => sql`
        insert into top_up (state, account_id, amount_cents, session_id, created_at, next_check_at)
        select 'open', gen_random_uuid(), 500, 'cs_test_open_' || n, now() - interval '2 hours', ${LASTS}
        from ${numbers}`,
    ],
    [
      'rate windows',
      windows,
      (numbers) => sql`
        insert into rate_window (key, scope, checked_at, allowed, taken)
        select sha256(convert_to('window ' || n, 'UTF8')), 'ip', ${LASTS}, true, array[${LASTS}] from ${numbers}`,
    ],
    [
      'feedback',
      feedback,
      (numbers) => sql`
        insert into feedback (nonce, wallet, category, message, signing_message, signature, trace_id, received_at,
                              notification, mailed_at)
        select gen_random_uuid(), ${payer}, 'bug', repeat('It speaks too fast. ', 10),
               repeat('I have something to say. ', 10), repeat('a', 130), gen_random_uuid(), at, 'queued', at
        from ${numbers}, lateral (select ${over(feedback)} as at) moment`,
    ],
  ];
}
