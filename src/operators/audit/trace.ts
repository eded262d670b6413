import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';

export interface TraceEntry {
  readonly at: Date;
  readonly what: string;
  readonly id: string;
  readonly state: string;
  readonly amountMicroUsd: bigint | null;
  readonly payer: string | null;
  readonly detail: string;
}

/** What a request charged, paid and queued, by time. May scan whole tables, because no index serves this. */
export async function findTrace(db: Database, traceId: string): Promise<TraceEntry[]> {
  const { rows } = await sql<TraceEntry>`
    with traced as materialized (
      select * from transfer where trace_id = ${traceId}::uuid
    ), entry as (
      select 1 as turn, created_at as at, kind as what, id::text, state, amount_micro_usd as amount,
             case when kind in ('settlement', 'deposit') then null else debit_account_id end as account_id,
             null as payer,
             concat_ws(', ', 'characters ' || characters, 'payment ' || reference,
                       'ended ' || to_char(ended_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) as detail
      from traced
      union all
      select 0, created_at, 'job', id::text, state, null, account_id, null,
             concat_ws(', ', 'attempts ' || attempts, 'hold ' || hold_id, error_code,
                       'ended ' || to_char(completed_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
      from job where trace_id = ${traceId}::uuid
      union all
      select 0, created_at, 'payment', id::text, state, amount_micro_usd, null, payer,
             concat_ws(', ', purpose, 'refused: ' || refusal, 'transaction ' || coalesce(transaction_hash, awaited_transaction))
      from x402_payment where trace_id = ${traceId}::uuid
    )
    select at, what, entry.id, state, amount as "amountMicroUsd",
           coalesce(payer, account.address, left(account.id::text, 8) || '…') as payer, detail
    from entry left join account on account.id = entry.account_id
    order by at, turn, entry.id`.execute(db);
  return rows;
}
