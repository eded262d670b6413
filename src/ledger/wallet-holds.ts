import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { type AskedHold, HOLD_COLUMNS, type HoldTerms, holdArrays, unlessLocked } from './asked-hold.ts';
import { contra } from './contra.ts';
import type { Hold } from './hold.ts';
import { type Entry, insertTransfer } from './transfer.ts';
import { inTime } from './wallets.ts';

/** A signed permission to spend from a wallet's balance, as far as the ledger is concerned. */
export interface Spend extends AskedHold {
  /** In lower case. */
  readonly address: string;
  readonly nonce: string;
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
  readonly address: string;
  readonly amount: bigint;
  readonly in_time: boolean;
  readonly id: string | null;
  readonly balance: bigint;
  readonly affordable: boolean;
  readonly remaining: bigint | null;
  readonly hold_id: bigint;
  readonly fence: number;
}

const SPEND: Omit<Entry, 'hold'> = {
  kind: 'spend',
  debit: fragment`id`,
  credit: contra.prepaidRevenue,
  amount: fragment`amount`,
  reference: fragment`nonce`,
  traceId: fragment`trace_id`,
};

/**
 * Holds amounts on wallets' balances and consumes the nonces, each of another wallet, in one statement: the accounts are
 * locked, a nonce goes in when its balance suffices, and the debit is made where the nonce went in. So nonce and debit
 * exist together or not at all, and a balance that is too small burns no nonce (R32). It is the locked balance that is
 * lowered: that of the statement's snapshot may be older, and too small.
 */
export async function placeWalletHolds(
  db: Database,
  spends: readonly Spend[],
  terms: HoldTerms,
): Promise<SpendResult[]> {
  const { rows } = await statement<Row>`
    with asked as materialized (
      select *, ${inTime(fragment`expiry`)} as in_time
      from unnest(${spends.map(({ address }) => address)}::text[], ${spends.map(({ nonce }) => nonce)}::text[],
                  ${spends.map(({ expiry }) => expiry)}::bigint[],
                  ${spends.map(({ isPermitted }) => isPermitted)}::boolean[], ${holdArrays(spends)})
        as asked (address, nonce, expiry, is_permitted, ${HOLD_COLUMNS})
    ), payer as materialized (
      select account.id, balance_micro_usd as balance, asked.*, is_permitted and balance_micro_usd >= amount as affordable
      from asked join account on account.address = asked.address where in_time
      for no key update of account ${unlessLocked(terms)}
    ), spent as (
      insert into prepaid_nonce (account_id, nonce) select id, nonce from payer where affordable
      on conflict do nothing
      returning account_id
    ), debit as (
      update account set balance_micro_usd = payer.balance - payer.amount
      from spent join payer on payer.id = spent.account_id where account.id = spent.account_id
      returning account.id, account.balance_micro_usd as remaining, nonce, ${HOLD_COLUMNS}
    ), hold as (
      ${insertTransfer({ ...SPEND, hold: { leaseSeconds: terms.leaseSeconds } }, fragment`debit`)}
      returning id, fence, debit_account_id
    )
    select asked.address, asked.amount, asked.in_time, payer.id, payer.balance, payer.affordable, debit.remaining,
           hold.id as hold_id, hold.fence
    from asked left join payer on payer.address = asked.address
      left join debit on debit.id = payer.id left join hold on hold.debit_account_id = payer.id`.execute(db);
  const found = new Map(rows.map((row) => [row.address, row]));
  return Promise.all(spends.map((spend) => readSpend(db, spend, found.get(spend.address) as Row)));
}

/** Holds an amount on one wallet's balance, and waits for whoever has that locked. @param leaseSeconds as of `HoldTerms` */
export async function placeWalletHold(db: Database, spend: Spend, leaseSeconds: number | null): Promise<SpendResult> {
  const [placed] = await placeWalletHolds(db, [spend], { leaseSeconds, locked: 'wait' });
  return placed as SpendResult;
}

async function readSpend(db: Database, { nonce }: Spend, row: Row): Promise<SpendResult> {
  if (!row.in_time) return { outcome: 'expiry' };
  if (row.id === null) return { outcome: 'unknown_account' };
  if (row.remaining !== null) {
    const hold = { id: row.hold_id, fence: row.fence, accountId: row.id };
    return { outcome: 'held', hold: { ...hold, amountMicroUsd: row.amount, balanceMicroUsd: row.remaining } };
  }
  if (row.affordable) return { outcome: 'replayed', balanceMicroUsd: row.balance };
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
