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
  /** For a `with`: returns rows with `key`, `allowed` and the columns. @param payers names rows with `gate_key` */
  pass(payers: Fragment): Fragment;
  readonly columns: Fragment;
  read(row: Row & { readonly allowed: boolean }): Told;
}

type Placed =
  | { readonly outcome: 'held'; readonly hold: Hold }
  | { readonly outcome: 'insufficient_funds'; readonly balanceMicroUsd: bigint };

export type CardHoldResult = Placed | { readonly outcome: 'unknown_account' };

/** What the gate told of a hold, and what became of it if the gate let it through. */
export interface GatedHold<Told> {
  readonly told: Told;
  readonly placed: Placed;
}

interface Row {
  readonly id: string;
  readonly balance: bigint;
  readonly amount: bigint;
  readonly allowed: boolean;
  readonly remaining: bigint | null;
  readonly hold_id: bigint;
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
 * Holds amounts on card accounts for charges, each on another account, in one statement: the accounts are locked, the
 * gate is asked for each, and those are debited that are let through and can pay. It is the locked balance that is
 * lowered: that of the statement's snapshot may be older. A statement that holds nothing does not wait for the disk.
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
    with asked as (
      select * from unnest(${asked.map(({ accountId }) => accountId)}::uuid[],
                           ${asked.map(({ accountId }) => gate.keyOf(accountId))}::bytea[], ${holdArrays(asked)})
        as asked (account_id, gate_key, ${HOLD_COLUMNS})
    ), payer as materialized (
      select account.id, balance_micro_usd as balance, gate_key, ${HOLD_COLUMNS}
      from asked join account on account.id = asked.account_id and kind = 'card' and ${isOfMode(livemode)}
      for no key update of account ${unlessLocked(terms)}
    ), gate as (
      ${gate.pass(fragment`payer`)}
    ), debit as (
      update account set balance_micro_usd = payer.balance - payer.amount
      from payer join gate on gate.key = payer.gate_key
      where account.id = payer.id and gate.allowed and payer.balance >= payer.amount
      returning account.id, account.balance_micro_usd as remaining, ${HOLD_COLUMNS}
    ), hold as (
      ${insertTransfer({ ...CHARGE, hold: { leaseSeconds } }, fragment`debit`)}
      returning id, fence, debit_account_id
    ), quick as (
      select set_config('synchronous_commit', 'off', true) where not exists (select from hold)
    )
    select payer.id, payer.balance, payer.amount, gate.allowed, ${gate.columns}, debit.remaining,
           hold.id as hold_id, hold.fence, (select count(*) from quick)
    from payer join gate on gate.key = payer.gate_key
      left join debit on debit.id = payer.id left join hold on hold.debit_account_id = payer.id`.execute(db);
  const found = new Map(rows.map((row) => [row.id, row]));
  return asked.map(({ accountId }) => {
    const row = found.get(accountId);
    return row && { told: gate.read(row), placed: readPlaced(row) };
  });
}

const readPlaced = ({ id, balance, amount, remaining, hold_id, fence }: Row): Placed => {
  if (remaining === null) return { outcome: 'insufficient_funds', balanceMicroUsd: balance };
  const hold = { id: hold_id, fence, accountId: id, amountMicroUsd: amount, balanceMicroUsd: remaining };
  return { outcome: 'held', hold };
};

/** Lets everything through. */
export const OPEN: Gate<unknown, undefined> = {
  keyOf: () => Buffer.alloc(0),
  pass: (payers) => fragment`select gate_key as key, true as allowed from ${payers}`,
  columns: fragment`null as told`,
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
  const asked = { ...more, accountId: accountId.toLowerCase(), amountMicroUsd };
  const [placed] = await placeCardHolds(db, [asked], { leaseSeconds, livemode, locked: 'wait' }, OPEN);
  return placed?.placed ?? { outcome: 'unknown_account' };
}
