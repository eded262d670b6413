import { type RawBuilder, sql } from 'kysely';
import { compiledOnce } from '../db/compiled-once.ts';
import type { Database } from '../db/database.ts';
import { asynchronousCommit, secondsFromNow } from '../db/expressions.ts';
import { bucketKey, type TakenSlots, takeSlots, type WindowSize } from '../db/rate-window.ts';
import { isAccountId } from './accounts.ts';
import { isOfMode } from './database-identity.ts';
import {
  HOLD_COLUMNS,
  type Hold,
  type HoldRequest,
  type HoldTerms,
  holdArrays,
  holdValues,
  unlessLocked,
} from './hold.ts';
import { contra } from './transfer.ts';

export interface CardHoldRequest extends HoldRequest {
  readonly accountId: string;
}

interface CardHoldTerms extends HoldTerms {
  /** When the hold is voided unless it is renewed. Null for a job's hold, which ends with the job. */
  readonly leaseSeconds: number | null;
  readonly livemode: boolean | null;
  /** Each hold first takes a slot of its account's window, and is not placed if none is left (R39). */
  readonly limit?: WindowSize;
}

/** Why an account may spend nothing: a debt (R61), or an operator has frozen it. */
type SpendBlock = 'account_frozen' | 'account_indebted';

type Placed =
  | { readonly outcome: 'held'; readonly hold: Hold }
  | { readonly outcome: 'insufficient_funds' | SpendBlock; readonly balanceMicroUsd: bigint };

export type CardHoldResult = Placed | { readonly outcome: 'unknown_account' };

export type GroupedCardHold =
  | {
      readonly outcome: 'judged';
      /** Of this hold and the others of its account in the statement; only with a limit. */
      readonly slots: TakenSlots;
      /** The hold's place among those of its account, from 1. */
      readonly turn: number;
      /** Undefined if the balance was too small after earlier holds of the statement: a separate statement must decide. */
      readonly placed: Placed | undefined;
    }
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'locked' };

type Row = JudgedRow | { readonly id: null; readonly is_known: boolean };

interface JudgedRow extends TakenSlots {
  readonly id: string;
  readonly balance: bigint;
  readonly block: SpendBlock | null;
  readonly amount: bigint;
  readonly turn: number;
  readonly total: bigint;
  readonly held_id: string | null;
  readonly fence: number;
}

/**
 * Places holds on card accounts in one statement. It locks the accounts, takes slots of their windows, and debits those
 * that have one and can pay. Their order is that of the requests. The new balance is computed from the locked row,
 * because the snapshot may show an older one. Only the hold of a job waits for the disk. A locked account is waited
 * for, unless those are skipped.
 */
export function cardHoldStatement(terms: CardHoldTerms) {
  const place = compiledOnce((_db, values: ReturnType<typeof valuesOf>) => placeHolds(values, terms));
  return async (db: Database, asked: readonly CardHoldRequest[]): Promise<GroupedCardHold[]> => {
    const rows = await place(db, valuesOf(asked));
    return rows.map((row) => {
      if (row.id === null) return { outcome: row.is_known ? 'locked' : 'unknown_account' };
      return { outcome: 'judged', slots: row, turn: row.turn, placed: readPlaced(row) };
    });
  };
}

const valuesOf = (asked: readonly CardHoldRequest[]) => ({
  accounts: asked.map(({ accountId }) => accountId),
  buckets: asked.map(({ accountId: key }) => bucketKey({ scope: 'account', key })),
  ...holdValues(asked),
});

function placeHolds(values: ReturnType<typeof valuesOf>, terms: CardHoldTerms): RawBuilder<Row> {
  const { leaseSeconds, livemode, limit } = terms;
  const slots = limit
    ? takeSlots(sql`(select bucket as key, 'account' as scope, attempts from payer) bucket`, limit)
    : sql`select bucket as key, 'account' as scope, attempts as granted, 0 as taken, 0 as reset_seconds from payer`;
  return sql<Row>`
    /* hold */ with asked as materialized (
      select * from unnest(${values.accounts}::uuid[], ${values.buckets}::bytea[], ${holdArrays(values)})
        with ordinality as asked (account_id, bucket, ${HOLD_COLUMNS}, place)
    ), payer as materialized (
      select account.id, balance_micro_usd as balance, bucket, attempts,
             case when frozen_at is not null then 'account_frozen' when is_indebted then 'account_indebted' end as block
      from (select account_id, bucket, count(*)::integer as attempts from asked group by account_id, bucket) asked
        join account on account.id = asked.account_id and kind = 'card' and ${isOfMode(livemode)}
      for no key update of account ${unlessLocked(terms)}
    ), slots as (
      ${slots}
    ), ranked as materialized (
      select place, payer.id, balance, block, ${HOLD_COLUMNS}, scope, granted, taken, reset_seconds,
             row_number() over account_holds as turn, sum(amount) over account_holds as total
      from asked join payer on payer.id = asked.account_id join slots on slots.key = payer.bucket
      window account_holds as (partition by payer.id order by place)
    ), payable as (
      select * from ranked where turn <= granted and total <= balance and block is null
    ), debit as (
      update account set balance_micro_usd = spent.balance - spent.total
      from (select id, balance, max(total)::bigint as total from payable group by id, balance) spent
      where account.id = spent.id
      returning account.id as account_id
    ), hold as (
      insert into transfer (id, kind, state, debit_account_id, credit_account_id, amount_micro_usd, trace_id, lease_until,
                            characters, rate_pico_usd, model)
      select hold_id, 'charge', 'pending', id, ${contra.cardRevenue}, amount, trace_id,
             ${leaseSeconds === null ? null : secondsFromNow(leaseSeconds)}, characters, rate_pico_usd, model
      from payable join debit on debit.account_id = payable.id
      returning id as held_id, fence
    ), quick as (
      select ${asynchronousCommit} where ${leaseSeconds !== null} or not exists (select from hold)
    )
    select asked.place, ranked.id, balance, block, ranked.amount, turn::integer, total::bigint, scope, granted, taken,
           reset_seconds, held_id, hold.fence, (select count(*) from quick),
           case when ranked.id is null then exists (
             select from account where id = asked.account_id and kind = 'card' and ${isOfMode(livemode)}
           ) end as is_known
    from asked left join ranked using (place) left join hold on held_id = ranked.hold_id
    order by place`;
}

function readPlaced({ id, balance, block, amount, turn, total, held_id, fence }: JudgedRow): Placed | undefined {
  if (held_id !== null) {
    const hold = { id: held_id, fence, accountId: id, amountMicroUsd: amount, balanceMicroUsd: balance - total };
    return { outcome: 'held', hold };
  }
  if (block !== null) return { outcome: block, balanceMicroUsd: balance };
  return turn === 1 ? { outcome: 'insufficient_funds', balanceMicroUsd: balance } : undefined;
}

export async function placeCardHold(
  db: Database,
  { accountId, ...asked }: CardHoldRequest,
  terms: Pick<CardHoldTerms, 'leaseSeconds' | 'livemode'>,
): Promise<CardHoldResult> {
  if (!isAccountId(accountId)) return { outcome: 'unknown_account' };
  const holds = [{ accountId: accountId.toLowerCase(), ...asked }];
  const [grouped] = await cardHoldStatement({ ...terms, locked: 'wait' })(db, holds);
  return (grouped?.outcome === 'judged' && grouped.placed) || { outcome: 'unknown_account' };
}
