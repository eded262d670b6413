import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { Period } from './period.ts';

/** What the sales of a period can be told by. */
export const GROUPS = ['day', 'flow', 'model', 'upstream'] as const;
export type Group = (typeof GROUPS)[number];

/** Sales of a period. Amounts are in micro-USD. */
export interface Sales {
  /** The day (UTC), the flow, or the id of the model or upstream; `unknown` of what an earlier release sold. */
  readonly group: string;
  /** Requests that were paid. */
  readonly requests: bigint;
  /** Requests whose price was held and not kept. */
  readonly failed: bigint;
  /** Of the paid requests. */
  readonly characters: bigint;
  readonly revenue: bigint;
  /** What was given back of this or an earlier period's revenue, since it was not delivered. */
  readonly givenBack: bigint;
  /** What was held at the period's end. */
  readonly held: bigint;
  /** What the upstreams cost, at the rates of the catalog then. */
  readonly upstreamCost: bigint;
  /** Revenue less what was given back and what the upstreams cost. */
  readonly margin: bigint;
  /** Paid requests of which it is not known what the upstream cost: they count as if it were nothing. */
  readonly uncosted: bigint;
}

const KEYS: Readonly<Record<Group, RawBuilder<unknown>>> = {
  day: sql`to_char(at at time zone 'utc', 'YYYY-MM-DD')`,
  flow: sql`flow`,
  model: sql`coalesce(model, 'unknown')`,
  upstream: sql`coalesce(upstream, 'unknown')`,
};

/** What was sold in the period, a row for each group that sold, failed, gave back or held something. */
export async function salesOf(db: Database, { from, to }: Period, group: Group): Promise<Sales[]> {
  const { rows } = await sql<Sales>`
    with entry as (
      select transfer.*, coalesce(transfer.characters, payment.characters) as spoken,
             case when transfer.kind = 'spend' then 'prepaid' when transfer.kind = 'settlement' then 'direct'
                  when exists (select from job where hold_id = transfer.id) then 'jobs' else 'card' end as flow
      from transfer
      left join x402_payment payment on transfer.kind = 'settlement' and payment.id::text = transfer.reference
      where transfer.kind in ('charge', 'spend', 'settlement')
    ), movement as (
      select ended_at as at, flow, model, upstream, 1 as requests, 0 as failed, spoken as characters,
             amount_micro_usd as revenue, 0 as given_back, 0 as held,
             (spoken * cost_pico_usd + 999999) / 1000000 as cost
      from entry where state = 'posted' and ended_at >= ${from} and ended_at < ${to}
      union all
      select ended_at, flow, model, upstream, 0, 1, 0, 0, 0, 0, 0
      from entry where state = 'voided' and ended_at >= ${from} and ended_at < ${to}
      union all
      select reversal.created_at, flow, entry.model, entry.upstream, 0, 0, 0, 0, entry.amount_micro_usd, 0, 0
      from reversal join entry on entry.id = reversal.transfer_id
      where reversal.created_at >= ${from} and reversal.created_at < ${to}
      union all
      select created_at, flow, model, upstream, 0, 0, 0, 0, 0, amount_micro_usd, 0
      from entry where created_at < ${to} and created_at >= ${from} and (state = 'pending' or ended_at >= ${to})
    )
    select ${KEYS[group]} as "group", sum(requests)::bigint as requests, sum(failed)::bigint as failed,
           coalesce(sum(characters), 0)::bigint as characters, sum(revenue)::bigint as revenue,
           sum(given_back)::bigint as "givenBack", sum(held)::bigint as held,
           coalesce(sum(cost), 0)::bigint as "upstreamCost",
           (sum(revenue) - sum(given_back) - coalesce(sum(cost), 0))::bigint as margin,
           count(*) filter (where cost is null) as uncosted
    from movement group by 1 order by 1`.execute(db);
  return rows;
}

/** All groups together. */
export function totalOf(sales: readonly Sales[]): Sales {
  const sum = (pick: (row: Sales) => bigint) => sales.reduce((total, row) => total + pick(row), 0n);
  return {
    group: 'total',
    requests: sum((row) => row.requests),
    failed: sum((row) => row.failed),
    characters: sum((row) => row.characters),
    revenue: sum((row) => row.revenue),
    givenBack: sum((row) => row.givenBack),
    held: sum((row) => row.held),
    upstreamCost: sum((row) => row.upstreamCost),
    margin: sum((row) => row.margin),
    uncosted: sum((row) => row.uncosted),
  };
}
