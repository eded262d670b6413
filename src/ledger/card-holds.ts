import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { asynchronousCommit, secondsFromNow } from '../db/expressions.ts';
import { compiledOnce } from '../db/hot-statements.ts';
import { bucketKey, type TakenSlots, takeSlots, type WindowSize } from '../db/rate-window.ts';
import { isAccountId } from './accounts.ts';
import { isOfMode } from './database-identity.ts';
import {
  HOLD_COLUMNS,
  type HoldRequest,
  type HoldTerms,
  holdArrays,
  holdValues,
  type Placed,
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

type Decided = Placed | { readonly outcome: 'insufficient_funds' | SpendBlock; readonly balanceMicroUsd: bigint };

export type CardHoldResult = Decided | { readonly outcome: 'unknown_account' };

export type GroupedCardHold =
  | {
      readonly outcome: 'judged';
      /** Of this hold and the others of its account in the statement; only with a limit. */
      readonly slots: TakenSlots;
      /** The hold's position among those of its account, from 1. */
      readonly turn: number;
      /** Undefined if the balance was too small after earlier holds of the statement: a separate statement must decide. */
      readonly decided: Decided | undefined;
    }
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'locked' };

type Row = JudgedRow | { readonly outcome: 'locked' } | { readonly outcome: 'unknown_account' };

interface JudgedRow extends TakenSlots {
  readonly outcome: Decided['outcome'] | 'undecided';
  readonly account_id: string;
  readonly balance: bigint;
  readonly turn: number;
  readonly fence: number;
}

/**
 * Places holds on card accounts in one statement. It locks the accounts, takes slots of their windows, and debits those
 * that have one and can pay (R6, R12). Their order is that of the requests. The new balance is computed from the locked
 * row, because the snapshot may show an older one. Only the hold of a job waits for the disk. A locked account is waited
 * for, unless those are skipped.
 */
export function cardHoldStatement(terms: CardHoldTerms) {
  const execute = compiledOnce((_db, values: ReturnType<typeof valuesOf>) => statementOf(values, terms));
  return async (db: Database, requests: readonly CardHoldRequest[]): Promise<GroupedCardHold[]> => {
    const rows = await execute(db, valuesOf(requests));
    return rows.map((row, index) => {
      if (row.outcome === 'locked' || row.outcome === 'unknown_account') return { outcome: row.outcome };
      const decided = decidedOf(requests[index] as CardHoldRequest, row);
      return { outcome: 'judged', slots: row, turn: row.turn, decided };
    });
  };
}

const valuesOf = (requests: readonly CardHoldRequest[]) => ({
  accounts: requests.map(({ accountId }) => accountId),
  buckets: requests.map(({ accountId: key }) => bucketKey({ scope: 'account', key })),
  ...holdValues(requests),
});

function statementOf(values: ReturnType<typeof valuesOf>, terms: CardHoldTerms): RawBuilder<Row> {
  const { leaseSeconds, livemode, limit } = terms;
  const slots = limit
    ? takeSlots(sql`(select bucket as key, 'account' as scope, attempts from payer) bucket`, limit)
    : sql`select bucket as key, 'account' as scope, attempts as granted, 0 as taken, 0 as reset_seconds from payer`;
  return sql<Row>`
    /* hold */ with request as materialized (
      select * from unnest(${values.accounts}::uuid[], ${values.buckets}::bytea[], ${holdArrays(values)})
        with ordinality as given (account_id, bucket, ${HOLD_COLUMNS}, ordinal)
    ), payer as materialized (
      select account.id as account_id, balance_micro_usd as balance, bucket, attempts,
             case when frozen_at is not null then 'account_frozen' when is_indebted then 'account_indebted' end as block
      from (select account_id, bucket, count(*)::integer as attempts from request group by account_id, bucket) named
        join account on account.id = named.account_id and kind = 'card' and ${isOfMode(livemode)}
      for no key update of account ${unlessLocked(terms)}
    ), slots as (
      ${slots}
    ), ranked as materialized (
      select ordinal, account_id, balance, block, ${HOLD_COLUMNS}, scope, granted, taken, reset_seconds,
             row_number() over account_holds as turn, sum(amount) over account_holds as total
      from request join payer using (account_id) join slots on slots.key = payer.bucket
      window account_holds as (partition by account_id order by ordinal)
    ), payable as (
      select * from ranked where turn <= granted and total <= balance and block is null
    ), debit as (
      update account set balance_micro_usd = spent.balance - spent.total
      from (select account_id, balance, max(total)::bigint as total from payable group by account_id, balance) spent
      where account.id = spent.account_id
      returning account.id as debited_id
    ), hold as (
      insert into transfer (id, kind, state, debit_account_id, credit_account_id, amount_micro_usd, trace_id, lease_until,
                            characters, rate_pico_usd, model)
      select hold_id, 'charge', 'pending', account_id, ${contra.cardRevenue}, amount, trace_id,
             ${leaseSeconds === null ? null : secondsFromNow(leaseSeconds)}, characters, rate_pico_usd, model
      from payable join debit on debited_id = account_id
      returning id as held_id, fence
    ), quick as (
      select ${asynchronousCommit} where ${leaseSeconds !== null} or not exists (select from hold)
    )
    select request.ordinal, ranked.account_id, turn::integer, scope, granted, taken, reset_seconds, fence,
           (case when held_id is null then balance else balance - total end)::bigint as balance,
           case when ranked.account_id is null then case when exists (
                  select from account where id = request.account_id and kind = 'card' and ${isOfMode(livemode)}
                ) then 'locked' else 'unknown_account' end
                when held_id is not null then 'placed'
                when block is not null then block
                when turn > 1 then 'undecided'
                else 'insufficient_funds' end as outcome, (select count(*) from quick)
    from request left join ranked using (ordinal) left join hold on held_id = ranked.hold_id
    order by ordinal`;
}

/** Undefined if earlier holds of the statement took the balance, so that a separate statement must decide. */
function decidedOf(
  { id, amountMicroUsd }: CardHoldRequest,
  { outcome, account_id: accountId, balance: balanceMicroUsd, fence }: JudgedRow,
): Decided | undefined {
  switch (outcome) {
    case 'placed':
      return { outcome, hold: { id, fence, accountId, amountMicroUsd, balanceMicroUsd } };
    case 'undecided':
      return undefined;
    default:
      return { outcome, balanceMicroUsd };
  }
}

/** Places one hold without a limit, and waits for an account that another transaction has locked. */
export function singleCardHold(terms: Omit<CardHoldTerms, 'locked' | 'limit'>) {
  const place = cardHoldStatement({ ...terms, locked: 'wait' });
  return async (db: Database, { accountId, ...request }: CardHoldRequest): Promise<CardHoldResult> => {
    if (!isAccountId(accountId)) return { outcome: 'unknown_account' };
    const [judged] = await place(db, [{ accountId: accountId.toLowerCase(), ...request }]);
    return (judged?.outcome === 'judged' && judged.decided) || { outcome: 'unknown_account' };
  };
}
