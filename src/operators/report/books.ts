import { type NotNull, sql } from 'kysely';
import type { Asset } from '../../config/network.ts';
import type { Address } from '../../config/payees.ts';
import type { Database } from '../../db/database.ts';
import { contra } from '../../ledger/transfer.ts';
import { isDay, readMoment } from '../../lib/moment.ts';
import type { Hex } from '../../payments/x402/envelope.ts';
import type { TransferClaim } from '../../payments/x402/transfer-proof.ts';

/** Includes `from` and excludes `to`. */
export interface Period {
  readonly from: Date;
  readonly to: Date;
}

const DAY_MS = 86_400_000;

export function readEnd(text: string): Date | undefined {
  const at = readMoment(text);
  return at && isDay(text) ? new Date(at.getTime() + DAY_MS) : at;
}

export const GROUPS = ['day', 'flow', 'model', 'upstream', 'account'] as const;
export type Group = (typeof GROUPS)[number];

export const AMOUNTS = ['revenueMicroUsd', 'heldMicroUsd', 'upstreamCostMicroUsd', 'marginMicroUsd'] as const;
const COUNTS = ['requests', 'failed', 'characters', ...AMOUNTS, 'uncosted'] as const;
/** `uncosted` counts requests with an unknown upstream cost. */
export type Sales = { readonly group: string } & Record<(typeof COUNTS)[number], bigint>;

export async function salesOf(db: Database, { from, to }: Period, group: Group): Promise<Sales[]> {
  const { rows } = await sql<Sales>`
    with entry as (
      select transfer.state, transfer.created_at, transfer.ended_at, transfer.model, transfer.upstream,
             transfer.amount_micro_usd, transfer.cost_pico_usd,
             coalesce(transfer.characters, payment.characters) as spoken,
             case when transfer.kind = 'spend' then 'prepaid' when transfer.kind = 'settlement' then 'direct'
                  when exists (select from job where hold_id = transfer.id) then 'jobs' else 'card' end as flow,
             coalesce(payment.payer, account.address, transfer.debit_account_id::text) as account
      from transfer
      left join account on account.id = transfer.debit_account_id
      left join x402_payment payment
        on payment.id = case when transfer.kind = 'settlement' then transfer.reference::uuid end
      where transfer.kind in ('charge', 'spend', 'settlement')
        and transfer.created_at < ${to} and (transfer.ended_at is null or transfer.ended_at >= ${from})
    ), movement as (
      select ended_at as at, flow, model, upstream, account, 1 as requests, 0 as failed, spoken as characters,
             amount_micro_usd as revenue, 0 as held,
             (spoken * cost_pico_usd + 999999) / 1000000 as cost
      from entry where state = 'posted' and ended_at >= ${from} and ended_at < ${to}
      union all
      select ended_at, flow, model, upstream, account, 0, 1, 0, 0, 0, 0
      from entry where state = 'voided' and ended_at >= ${from} and ended_at < ${to}
      union all
      select created_at, flow, model, upstream, account, 0, 0, 0, 0, amount_micro_usd, 0
      from entry where created_at < ${to} and created_at >= ${from} and (state = 'pending' or ended_at >= ${to})
    )
    select case ${group}::text when 'day' then to_char(at at time zone 'utc', 'YYYY-MM-DD') when 'flow' then flow
                when 'model' then coalesce(model, 'unknown') when 'account' then account
                else coalesce(upstream, 'unknown') end as "group",
           sum(requests)::bigint as requests, sum(failed)::bigint as failed,
           coalesce(sum(characters), 0)::bigint as characters, sum(revenue)::bigint as "revenueMicroUsd",
           sum(held)::bigint as "heldMicroUsd",
           coalesce(sum(cost), 0)::bigint as "upstreamCostMicroUsd",
           (sum(revenue) - coalesce(sum(cost), 0))::bigint as "marginMicroUsd",
           count(*) filter (where cost is null) as uncosted
    from movement group by 1 order by 1`.execute(db);
  return rows;
}

export function totalOf(sales: readonly Sales[]): Sales {
  const sumOf = (column: (typeof COUNTS)[number]) => sales.reduce((sum, row) => sum + row[column], 0n);
  const sums = Object.fromEntries(COUNTS.map((column) => [column, sumOf(column)]));
  return { group: 'total', ...sums } as Sales;
}

const MONEY_KINDS = {
  bought: 'top_up',
  refunded: 'refund',
  refundsFailed: 'refund_failed',
  disputed: 'dispute',
  disputesWon: 'dispute_won',
  debtsPaid: 'debt_payment',
  adjusted: 'adjustment',
  deposited: 'deposit',
  paidDirectly: 'settlement',
};

/** By kind, without sales. */
export async function moneyOf(db: Database, { from, to }: Period): Promise<Record<string, bigint>> {
  const rows = await db
    .selectFrom('transfer')
    .select((eb) => {
      const isTaken = eb.and([eb('kind', '=', 'adjustment'), eb('debit_account_id', '<>', contra.cardAdjustments)]);
      const amount = eb.case().when(isTaken).then(eb.neg('amount_micro_usd')).else(eb.ref('amount_micro_usd')).end();
      return ['kind', eb.cast<bigint>(eb.fn.sum(amount), 'bigint').as('microUsd')];
    })
    .where('state', '=', 'posted')
    .where('ended_at', '>=', from)
    .where('ended_at', '<', to)
    .where('kind', 'in', Object.values(MONEY_KINDS))
    .groupBy('kind')
    .execute();
  const sums = new Map(rows.map(({ kind, microUsd }) => [kind, microUsd]));
  return Object.fromEntries(
    Object.entries(MONEY_KINDS).map(([name, kind]) => [`${name}MicroUsd`, sums.get(kind) ?? 0n]),
  );
}

/** Summed over the entries before that time. */
export async function liabilityAt(db: Database, at: Date): Promise<Record<string, bigint>> {
  const { rows } = await sql<Record<string, bigint>>`
    with contra as materialized (
      select id from account where kind = 'contra'
    ), movement as (
      select credit_account_id as account_id, amount_micro_usd as amount from transfer
      where state = 'posted' and ended_at < ${at} and credit_account_id not in (select id from contra)
      union all
      select debit_account_id, -amount_micro_usd from transfer
      where created_at < ${at} and (state <> 'voided' or ended_at >= ${at})
        and debit_account_id not in (select id from contra)
    ), total as (
      select kind, sum(amount)::bigint as amount
      from movement join account on account.id = movement.account_id group by kind
    )
    select coalesce((select amount from total where kind = 'card'), 0) as "cardBalancesMicroUsd",
           coalesce((select amount from total where kind = 'wallet'), 0) as "prepaidBalancesMicroUsd",
           coalesce((select sum(amount_micro_usd)::bigint from transfer
                     where created_at < ${at} and kind in ('charge', 'spend')
                       and (state = 'pending' or ended_at >= ${at})), 0) as "heldMicroUsd",
           coalesce((select -amount from total where kind = 'debt'), 0) as "debtsMicroUsd"`.execute(db);
  return rows[0] ?? {};
}

export interface BookedItem {
  readonly what: 'purchase' | 'refund' | 'dispute';
  readonly id: string;
  readonly microUsd: bigint;
  readonly at: Date;
}

const selectBooked = (db: Database) =>
  db
    .selectFrom('transfer')
    .leftJoin('top_up', (join) => join.on('kind', '=', 'top_up').onRef('top_up.session_id', '=', 'transfer.reference'))
    .where('kind', 'in', ['top_up', 'refund', 'refund_failed', 'dispute', 'dispute_won'])
    .select((eb) => [
      'ended_at',
      eb
        .case()
        .when('kind', '=', 'top_up')
        .then('purchase' as const)
        .when('kind', 'in', ['refund', 'refund_failed'])
        .then('refund' as const)
        .else('dispute' as const)
        .end()
        .as('what'),
      eb
        .case()
        .when('kind', '=', 'top_up')
        .then(eb.cast<string>('top_up.id', 'text'))
        .else(eb.fn<string>('split_part', ['transfer.reference', eb.val(':'), eb.lit(1)]))
        .end()
        .as('id'),
      eb
        .case()
        .when('kind', 'in', ['refund', 'dispute'])
        .then(eb.neg('amount_micro_usd'))
        .else(eb.ref('amount_micro_usd'))
        .end()
        .as('amount'),
    ])
    .as('booked');

export async function bookedIn(db: Database, { from, to }: Period): Promise<Map<string, BookedItem>> {
  const rows = await db
    .selectFrom(selectBooked(db))
    .select(({ cast, fn }) => ['what', 'id', cast<bigint>(fn.sum('amount'), 'bigint').as('microUsd')])
    .select(({ fn }) => fn.max('ended_at').$notNull().as('at'))
    .where('ended_at', '>=', from)
    .where('ended_at', '<', to)
    .groupBy(['what', 'id'])
    .execute();
  return new Map(rows.map((item) => [`${item.what} ${item.id}`, item]));
}

export async function bookedAt(db: Database, what: BookedItem['what'], id: string): Promise<Date | undefined> {
  const row = await db
    .selectFrom(selectBooked(db))
    .select((eb) => eb.fn.max('ended_at').as('at'))
    .where('what', '=', what)
    .where('id', '=', id)
    .executeTakeFirst();
  return row?.at ?? undefined;
}

export async function isOnItsWay(db: Database, { what, id, at }: BookedItem): Promise<boolean> {
  const found =
    what === 'purchase'
      ? db.selectFrom('top_up').select('id').where('id', '=', id).where('state', 'in', ['opening', 'open'])
      : db
          .selectFrom('processor_list')
          .select('name as id')
          .where('name', '=', `${what}s`)
          .where('read_until', '<=', at);
  return (await found.executeTakeFirst()) !== undefined;
}

export async function processorIdsOf(
  db: Database,
  purchaseId: string,
): Promise<{ readonly payment: string | null; readonly session: string | null } | undefined> {
  return db
    .selectFrom('top_up')
    .select(['payment_intent_id as payment', 'session_id as session'])
    .where('id', '=', purchaseId)
    .executeTakeFirst();
}

export interface SettledPayment {
  readonly transaction: Hex;
  readonly claim: Pick<TransferClaim, 'payer' | 'nonce'>;
  readonly microUsd: bigint;
  readonly at: Date;
}

export async function settledSince(
  db: Database,
  { network, address }: Asset,
  since: Date,
): Promise<Map<string, SettledPayment>> {
  const rows = await db
    .selectFrom('x402_payment')
    .select(['transaction_hash as transaction', 'payer', 'nonce', 'settled_at as at', 'amount_micro_usd as microUsd'])
    .where('state', '=', 'settled')
    .where('network', '=', network)
    .where('asset', '=', address.toLowerCase())
    .where('settled_at', '>=', since)
    .$narrowType<{ transaction: Hex; at: NotNull; payer: Address; nonce: Hex }>()
    .execute();
  return new Map(
    rows.map(({ payer, nonce, ...row }) => [
      `${row.transaction}:${payer}:${nonce}`,
      { ...row, claim: { payer, nonce } },
    ]),
  );
}
