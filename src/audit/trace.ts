import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** Something that the books know of a request. */
export interface TraceEntry {
  readonly at: Date;
  /** `job`, `payment`, or the kind of a transfer; a charge or a spend is a hold while it is pending. */
  readonly what: string;
  readonly id: string;
  readonly state: string;
  readonly amountMicroUsd: bigint | null;
  /** A wallet's address, or the beginning of a card account's id: whoever has the whole one can spend from it. */
  readonly payer: string | null;
  readonly detail: string;
}

const time = (column: string) => sql.raw(`to_char(${column} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`);

/**
 * What the request with this trace id has charged, paid and queued, and what was given back of it, in the order of time.
 * Reads whole tables, since no index is kept for it. Only reads.
 */
export async function findTrace(db: Database, traceId: string): Promise<TraceEntry[]> {
  const { rows } = await sql<TraceEntry>`
    with traced as materialized (
      select * from transfer where trace_id = ${traceId}::uuid
    ), entry as (
      select 1 as turn, created_at as at, kind as what, id::text, state, amount_micro_usd as amount,
             case when kind in ('settlement', 'deposit') then null else debit_account_id end as account_id,
             null as payer,
             concat_ws(', ', characters || ' characters', 'payment ' || reference, 'ended ' || ${time('ended_at')}) as detail
      from traced
      union all
      select 2, transfer.created_at, transfer.kind, transfer.id::text, transfer.state, transfer.amount_micro_usd,
             transfer.credit_account_id, null, 'gives back ' || reversal.transfer_id || ': ' || reversal.reason
      from traced join reversal on reversal.transfer_id = traced.id
      join transfer on transfer.kind = 'reversal' and transfer.reference = reversal.transfer_id::text
      union all
      select 0, created_at, 'job', id::text, state, null, account_id, null,
             concat_ws(', ', 'attempts ' || attempts, 'hold ' || hold_id, error_code, 'ended ' || ${time('completed_at')})
      from job where trace_id = ${traceId}::uuid
      union all
      select 0, created_at, 'payment', id::text, state, amount_micro_usd, null, payer,
             concat_ws(', ', purpose, 'refused: ' || refusal, 'transaction ' || coalesce(transaction_hash, awaited_transaction))
      from x402_payment where trace_id = ${traceId}::uuid
    )
    select at, what, entry.id, state, amount as "amountMicroUsd", detail,
           coalesce(payer, account.address, left(account.id::text, 8) || '…') as payer
    from entry left join account on account.id = entry.account_id
    order by at, turn, entry.id`.execute(db);
  return rows;
}
