import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { type AskedHold, HOLD_COLUMNS, type HoldTerms, holdArrays, unlessLocked } from './asked-hold.ts';
import { contra } from './contra.ts';
import type { Hold } from './hold.ts';
import { type Entry, insertTransfer, nextTransferId } from './transfer.ts';
import { inTime } from './wallets.ts';

/** A signed permission to spend from a wallet's balance, as far as the ledger is concerned. */
export interface Spend extends AskedHold {
  /** In lower case. */
  readonly address: string;
  readonly nonce: string;
  /** Of credential and request: what is identical has the same. The service always tells it. */
  readonly digest?: Buffer | undefined;
  /** Unix seconds. */
  readonly expiry: bigint;
  /** False when the amount is more than the signature permits: nothing is spent then. */
  readonly isPermitted: boolean;
}

export type SpendResult =
  | { readonly outcome: 'held'; readonly hold: Hold }
  /** It is past or too far ahead by the database's clock (R34). */
  | { readonly outcome: 'expiry' }
  /** The wallet never deposited, or is locked by somebody else where such are skipped. */
  | { readonly outcome: 'unknown_account' }
  | { readonly outcome: 'replayed' | 'insufficient_funds'; readonly balanceMicroUsd: bigint };

interface Row {
  /** Of the spend in what was asked, from 1. */
  readonly place: bigint;
  readonly amount: bigint;
  readonly in_time: boolean;
  readonly id: string | null;
  readonly balance: bigint;
  /** Among the spends of the wallet, from 1. */
  readonly turn: number;
  readonly affordable: boolean;
  readonly remaining: bigint;
  readonly hold_id: bigint | null;
  readonly fence: number;
}

const SPEND: Omit<Entry, 'hold'> = {
  kind: 'spend',
  id: fragment`drawn_id`,
  debit: fragment`id`,
  credit: contra.prepaidRevenue,
  amount: fragment`amount`,
  reference: fragment`nonce`,
  traceId: fragment`trace_id`,
};

/**
 * Holds amounts on wallets' balances and consumes the nonces, in one statement: the accounts are locked, a nonce goes in
 * when its balance suffices for it and the wallet's spends before it, and the debit is made where nonces went in. So nonce
 * and debit exist together or not at all, and a balance that is too small burns no nonce (R32). It is the locked balance
 * that is lowered: that of the statement's snapshot may be older, and too small.
 * @returns undefined for a spend that only a statement of its own can judge: its nonce is asked for twice, or the balance
 *   is too small beside the spends before it
 */
export async function placeWalletHolds(
  db: Database,
  spends: readonly Spend[],
  terms: HoldTerms,
): Promise<(SpendResult | undefined)[]> {
  const { rows } = await statement<Row>`
    with asked as materialized (
      select *, ${inTime(fragment`expiry`)} as in_time
      from unnest(${spends.map(({ address }) => address)}::text[], ${spends.map(({ nonce }) => nonce)}::text[],
                  ${spends.map(({ digest }) => digest)}::bytea[], ${spends.map(({ expiry }) => expiry)}::bigint[],
                  ${spends.map(({ isPermitted }) => isPermitted)}::boolean[], ${holdArrays(spends)})
        with ordinality as asked (address, nonce, digest, expiry, is_permitted, ${HOLD_COLUMNS}, place)
    ), payer as materialized (
      select account.id, account.address, balance_micro_usd as balance
      from (select distinct address from asked where in_time) asked join account on account.address = asked.address
      for no key update of account ${unlessLocked(terms)}
    ), ranked as materialized (
      select place, id, balance, nonce, digest, ${HOLD_COLUMNS}, row_number() over wallet_spends as turn,
             is_permitted and sum(amount) over wallet_spends <= balance
               and row_number() over (partition by id, nonce order by place) = 1 as affordable
      from asked join payer on payer.address = asked.address where in_time
      window wallet_spends as (partition by id order by place)
    ), spent as (
      insert into prepaid_nonce (account_id, nonce, request_digest, hold_id)
      select id, nonce, digest, ${nextTransferId} from ranked where affordable
      on conflict do nothing
      returning account_id, nonce as spent_nonce, prepaid_nonce.hold_id as drawn_id
    ), paid as materialized (
      select id, balance, nonce, drawn_id, ${HOLD_COLUMNS}, place as paid_place,
             sum(amount) over (partition by id order by place)::bigint as total
      from ranked join spent on account_id = id and spent_nonce = nonce where affordable
    ), debit as (
      update account set balance_micro_usd = due.balance - due.total
      from (select id, balance, max(total) as total from paid group by id, balance) due
      where account.id = due.id
      returning account.id as debited_id, account.balance_micro_usd as left_over
    ), hold as (
      ${insertTransfer({ ...SPEND, hold: { leaseSeconds: terms.leaseSeconds } }, fragment`paid join debit on debited_id = id`)}
      returning id as hold_id, fence
    )
    select asked.place, asked.amount, asked.in_time, ranked.id, coalesce(debit.left_over, ranked.balance) as balance,
           ranked.turn::integer, affordable, paid.balance - paid.total as remaining, hold_id, fence
    from asked left join ranked on ranked.place = asked.place left join debit on debited_id = ranked.id
      left join paid on paid_place = asked.place
      left join hold on hold_id = drawn_id`.execute(db);
  const found = new Map(rows.map((row) => [Number(row.place), row]));
  return Promise.all(spends.map((spend, index) => readSpend(db, spend, found.get(index + 1) as Row)));
}

/** Holds an amount on one wallet's balance, and waits for whoever has that locked. @param leaseSeconds as of `HoldTerms` */
export async function placeWalletHold(db: Database, spend: Spend, leaseSeconds: number | null): Promise<SpendResult> {
  const [placed] = await placeWalletHolds(db, [spend], { leaseSeconds, locked: 'wait' });
  return placed as SpendResult;
}

async function readSpend(db: Database, { nonce }: Spend, row: Row): Promise<SpendResult | undefined> {
  if (!row.in_time) return { outcome: 'expiry' };
  if (row.id === null) return { outcome: 'unknown_account' };
  if (row.hold_id !== null) {
    const { hold_id: id, fence, id: accountId, amount: amountMicroUsd, remaining: balanceMicroUsd } = row;
    return { outcome: 'held', hold: { id, fence, accountId, amountMicroUsd, balanceMicroUsd } };
  }
  if (row.affordable) return { outcome: 'replayed', balanceMicroUsd: row.balance };
  if (row.turn > 1) return undefined;
  // The statement's snapshot may be older than the spend that emptied the balance; this one is not.
  const { isSpent, balanceMicroUsd } = await readNonce(db, row.id, nonce);
  return { outcome: isSpent ? 'replayed' : 'insufficient_funds', balanceMicroUsd };
}

async function readNonce(db: Database, accountId: string, nonce: string) {
  const { rows } = await sql<{ balance: bigint; spent: boolean }>`
    select balance_micro_usd as balance,
           exists (select from prepaid_nonce where account_id = ${accountId} and nonce = ${nonce}) as spent
    from account where id = ${accountId}`.execute(db);
  return { isSpent: rows[0]?.spent ?? false, balanceMicroUsd: rows[0]?.balance ?? 0n };
}
