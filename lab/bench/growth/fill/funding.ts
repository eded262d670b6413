import { sql } from 'kysely';
import type { Database } from '../../../../src/db/database.ts';
import { contra } from '../../../../src/ledger/transfer.ts';
import { inChunks, numbers, type Progress } from './chunks.ts';
import { ASSET, DEPOSIT_MICRO_USD, FUNDING_CENTS, NETWORK, PAY_TO } from './names.ts';
import type { FillSizes } from './sizes.ts';

/** Funding happens on the first day: card accounts in its first half, wallets in the second. */
const HALF_DAY_SECONDS = 43_200;

export async function fillPurchases(db: Database, { accounts, days }: FillSizes, progress: Progress): Promise<void> {
  const count = accounts / 2;
  await inChunks(
    db,
    { what: 'purchases', count },
    (from, to) => sql`
      with purchase as (
        insert into top_up (state, account_id, amount_cents, session_id, created_at, credited_at, next_check_at)
        select 'credited', growth.card(n), ${FUNDING_CENTS}::int, 'cs_test_' || md5(n::text), at, at, at
        from ${numbers(from, to)}, lateral (select ${atSecond(days, 0, count)} as at) moment
        returning account_id, session_id, credited_at
      )
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at, ended_at)
      select 'top_up', 'posted', ${contra.cardClearing}::uuid, account_id, ${FUNDING_CENTS * 10_000}::bigint, session_id,
             credited_at, credited_at
      from purchase`,
    progress,
  );
}

export async function fillDeposits(db: Database, { accounts, days }: FillSizes, progress: Progress): Promise<void> {
  const count = accounts / 2;
  await inChunks(
    db,
    { what: 'deposits', count },
    (from, to) => sql`
      with deposit as (
        select n, ${atSecond(days, HALF_DAY_SECONDS, count)} as at, growth.address(n) as payer,
               ${DEPOSIT_MICRO_USD}::bigint as amount, 'deposit' as purpose, gen_random_uuid() as trace_id
        from ${numbers(from, to)}
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
    progress,
  );
}

const atSecond = (days: number, after: number, count: number) => sql`
  now() - make_interval(days => ${days}::int) + make_interval(secs => ${after}::int + n * ${HALF_DAY_SECONDS}::double precision / ${count}::int)`;

/** The columns that SETTLED_COLUMNS fills. */
export const insertSettled = sql`
  insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                            valid_before, head_block, transaction_hash, log_index, receipt, created_at, settling_at,
                            settled_at, purpose, trace_id)`;

/** Expects a row with `n`, `at`, `payer`, `amount`, `purpose` and `trace_id`. `purpose` and `n` identify a payment. */
export const SETTLED_COLUMNS = sql`
  'settled', 'pay_' || md5(purpose || n), sha256(convert_to(purpose || n, 'UTF8')), ${NETWORK}, ${ASSET}, payer,
  growth.word(hashtextextended(purpose || n, 1)), ${PAY_TO}, amount, extract(epoch from at)::bigint + 300, n / 10,
  growth.word(hashtextextended(purpose || n, 2)), (n % 100)::int,
  translate(encode(convert_to(json_build_object(
    'success', true, 'transaction', growth.word(hashtextextended(purpose || n, 2)), 'network', ${NETWORK}::text,
    'payer', payer)::text, 'UTF8'), 'base64'), E'\n', ''),
  at, at, at, purpose, trace_id`;
