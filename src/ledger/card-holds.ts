import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';
import { isAccountId } from './accounts.ts';
import { type AskedHold, HOLD_COLUMNS, type HoldTerms, holdArrays, unlessLocked } from './asked-hold.ts';
import { contra } from './contra.ts';
import type { Hold } from './hold.ts';
import { isOfMode } from './instance.ts';
import { type Entry, insertTransfer } from './transfer.ts';

/** A hold that is asked for on a card account. */
export interface AskedCardHold extends AskedHold {
  /** A UUID in lower case. */
  readonly accountId: string;
}

export interface CardHoldTerms extends HoldTerms {
  /** Of the processor's key: an account of the other mode is unknown. Null for one of either mode. */
  readonly livemode: boolean | null;
}

/** What else is asked, in the same statement, before an account is debited. */
export interface Gate<Row, Told> {
  /** Names an account to the gate, by its id in lower case. */
  keyOf(accountId: string): Buffer;
  /**
   * For a `with`: returns rows with `key`, `granted` (how many of the holds are let through, the first ones) and the
   * columns. @param payers names rows with `gate_key` and `attempts`, how many holds are asked for
   */
  pass(payers: Fragment): Fragment;
  readonly columns: Fragment;
  /** @param turn of the hold among those of its account, from 1 */
  read(row: Row, turn: number): Told;
}

/** Why nothing at all is spent from an account now: its debt (R61), or the operator. */
export type Bar = 'account_frozen' | 'account_indebted';

type Placed =
  | { readonly outcome: 'held'; readonly hold: Hold }
  | { readonly outcome: 'insufficient_funds' | Bar; readonly balanceMicroUsd: bigint };

export type CardHoldResult = Placed | { readonly outcome: 'unknown_account' };

/** What the gate told of a hold, and what became of it if the gate let it through. */
export interface GatedHold<Told> {
  readonly told: Told;
  /** Undefined where the balance was too small beside the holds before it: then only a statement of its own can tell. */
  readonly placed: Placed | undefined;
}

interface Row {
  /** Of the hold in what was asked, from 1. */
  readonly place: bigint;
  readonly id: string;
  readonly balance: bigint;
  readonly bar: Bar | null;
  readonly amount: bigint;
  readonly turn: number;
  /** Of this hold and those before it on the account. */
  readonly total: bigint;
  readonly hold_id: bigint | null;
  readonly fence: number;
}

const CHARGE: Omit<Entry, 'hold'> = {
  kind: 'charge',
  debit: fragment`id`,
  credit: contra.cardRevenue,
  amount: fragment`amount`,
  reference: null,
  traceId: fragment`trace_id`,
};

/**
 * Holds amounts on card accounts for charges, in one statement: the accounts are locked, the gate is asked for each, and
 * those are debited that are let through and can pay, an account's holds in the order in which they were asked for. It
 * is the locked balance that is lowered: that of the statement's snapshot may be older. A statement that holds nothing
 * does not wait for the disk.
 * @param asked of several holds on one account, each has a trace id of its own
 * @returns undefined for an account that is unknown, or locked by somebody else where such are skipped
 */
export async function placeCardHolds<Columns, Told>(
  db: Database,
  asked: readonly AskedCardHold[],
  terms: CardHoldTerms,
  gate: Gate<Columns, Told>,
): Promise<(GatedHold<Told> | undefined)[]> {
  const { leaseSeconds, livemode } = terms;
  const { rows } = await statement<Row & Columns>`
    with asked as materialized (
      select * from unnest(${asked.map(({ accountId }) => accountId)}::uuid[],
                           ${asked.map(({ accountId }) => gate.keyOf(accountId))}::bytea[], ${holdArrays(asked)})
        with ordinality as asked (account_id, gate_key, ${HOLD_COLUMNS}, place)
    ), payer as materialized (
      select account.id, balance_micro_usd as balance, gate_key, attempts,
             case when frozen_at is not null then 'account_frozen' when is_indebted then 'account_indebted' end as bar
      from (select account_id, gate_key, count(*)::integer as attempts from asked group by account_id, gate_key) asked
        join account on account.id = asked.account_id and kind = 'card' and ${isOfMode(livemode)}
      for no key update of account ${unlessLocked(terms)}
    ), gate as (
      ${gate.pass(fragment`payer`)}
    ), ranked as materialized (
      select place, payer.id, balance, bar, ${HOLD_COLUMNS}, granted, ${gate.columns},
             row_number() over account_holds as turn, sum(amount) over account_holds as total
      from asked join payer on payer.id = asked.account_id join gate on gate.key = payer.gate_key
      window account_holds as (partition by payer.id order by place)
    ), payable as (
      select * from ranked where turn <= granted and total <= balance and bar is null
    ), debit as (
      update account set balance_micro_usd = spent.balance - spent.total
      from (select id, balance, max(total)::bigint as total from payable group by id, balance) spent
      where account.id = spent.id
      returning account.id as account_id
    ), hold as (
      ${insertTransfer({ ...CHARGE, hold: { leaseSeconds } }, fragment`payable join debit on debit.account_id = payable.id`)}
      returning id, fence, debit_account_id, trace_id
    ), quick as (
      select set_config('synchronous_commit', 'off', true) where not exists (select from hold)
    )
    select place, ranked.id, balance, bar, amount, turn::integer, total::bigint, granted, ${gate.columns},
           hold.id as hold_id, hold.fence, (select count(*) from quick)
    from ranked left join hold
      on hold.debit_account_id = ranked.id and hold.trace_id is not distinct from ranked.trace_id`.execute(db);
  const found = new Map(rows.map((row) => [Number(row.place), row]));
  return asked.map((_, index) => {
    const row = found.get(index + 1);
    return row && { told: gate.read(row, row.turn), placed: readPlaced(row) };
  });
}

function readPlaced({ id, balance, bar, amount, turn, total, hold_id, fence }: Row): Placed | undefined {
  if (hold_id !== null) {
    const hold = { id: hold_id, fence, accountId: id, amountMicroUsd: amount, balanceMicroUsd: balance - total };
    return { outcome: 'held', hold };
  }
  if (bar !== null) return { outcome: bar, balanceMicroUsd: balance };
  return turn === 1 ? { outcome: 'insufficient_funds', balanceMicroUsd: balance } : undefined;
}

/** Lets everything through. */
export const OPEN: Gate<unknown, undefined> = {
  keyOf: (accountId) => Buffer.from(accountId),
  pass: (payers) => fragment`select gate_key as key, attempts as granted, null as told from ${payers}`,
  columns: fragment`told`,
  read: () => undefined,
};

/** What else is known of one hold. */
type OneHold = Pick<AskedCardHold, 'paidFor' | 'processId'> & { readonly livemode?: boolean | null | undefined };

/** Holds an amount on one card account, and waits for whoever has that locked. @param leaseSeconds as of `HoldTerms` */
export async function placeCardHold(
  db: Database,
  accountId: string,
  amountMicroUsd: bigint,
  leaseSeconds: number | null,
  { livemode = null, ...more }: OneHold = {},
): Promise<CardHoldResult> {
  if (!isAccountId(accountId)) return { outcome: 'unknown_account' };
  const asked = { accountId: accountId.toLowerCase(), amountMicroUsd, ...more };
  const [placed] = await placeCardHolds(db, [asked], { leaseSeconds, livemode, locked: 'wait' }, OPEN);
  return placed?.placed ?? { outcome: 'unknown_account' };
}
