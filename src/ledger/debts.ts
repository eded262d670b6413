import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';
import { testPoint } from '../lib/test-point.ts';
import { contra } from './contra.ts';
import { type Entry, insertTransfer } from './transfer.ts';

/**
 * What the card processor did with money of a purchase that had been credited (R61). What it took is a debt first, which
 * the account pays from what it has; the rest is paid by whatever is credited next. All amounts are in micro-USD.
 */
export interface ProcessorMoney {
  readonly accountId: string;
  readonly amountMicroUsd: bigint;
  /** Of the processor, with the turn behind it where it is taken or returned again. */
  readonly reference: string;
}

/** Keeps everybody else from changing the account, and its debt, until the transaction ends. */
export async function lockAccount(trx: Database, accountId: string): Promise<void> {
  await statement`select from account where id = ${accountId} for no key update`.execute(trx);
}

/** Takes what the processor took back, of an account that is locked. */
export async function takeBack(
  trx: Database,
  kind: 'refund' | 'dispute',
  { accountId, amountMicroUsd, reference }: ProcessorMoney,
): Promise<void> {
  const entry = { kind, debit: fragment`id`, credit: contra.cardClearing, amount: amountMicroUsd, reference };
  await statement`
    with debt as (
      insert into account (kind, owner_id, balance_micro_usd) values ('debt', ${accountId}, ${amountMicroUsd})
      on conflict (owner_id) where kind = 'debt'
      do update set balance_micro_usd = account.balance_micro_usd + excluded.balance_micro_usd
      returning id
    ), entry as (
      ${insertTransfer({ ...entry, traceId: null }, fragment`debt`)}
    )
    update account set is_indebted = true where id = ${accountId}`.execute(trx);
  testPoint('debt made');
  await collectDebt(trx, accountId);
}

/** Gives what the processor gave back, to an account that is locked; its debt is paid first. */
export async function bringBack(
  trx: Database,
  kind: 'refund_failed' | 'dispute_won',
  { accountId, amountMicroUsd, reference }: ProcessorMoney,
): Promise<void> {
  const entry = { kind, debit: contra.cardClearing, credit: accountId, amount: amountMicroUsd, reference };
  await statement`
    with entry as (
      ${insertTransfer({ ...entry, traceId: null }, fragment`account where id = ${accountId}`)}
    )
    update account set balance_micro_usd = balance_micro_usd + ${amountMicroUsd} where id = ${accountId}`.execute(trx);
  await collectDebt(trx, accountId);
}

const DEBT_PAYMENT: Entry = {
  kind: 'debt_payment',
  debit: fragment`debtor_id`,
  credit: fragment`debt_id`,
  amount: fragment`amount`,
  reference: fragment`debt_id::text`,
  traceId: null,
};

/**
 * Pays what the account owes from what it has; both are locked, the account first, as everywhere.
 * @returns what was paid, and what is still owed
 */
export async function collectDebt(trx: Database, accountId: string): Promise<{ paid: bigint; owed: bigint }> {
  await lockAccount(trx, accountId);
  const { rows } = await statement<{ paid: bigint; owed: bigint }>`
    with payable as materialized (
      select owner.id as debtor_id, debt.id as debt_id, debt.balance_micro_usd as debt,
             least(owner.balance_micro_usd, debt.balance_micro_usd) as amount
      from account owner join account debt on debt.kind = 'debt' and debt.owner_id = owner.id
      where owner.id = ${accountId}
    ), entry as (
      ${insertTransfer(DEBT_PAYMENT, fragment`payable where amount > 0`)}
    )
    update account set balance_micro_usd = balance_micro_usd - amount,
                       is_indebted = account.id = debtor_id and debt > amount
    from payable where account.id in (debtor_id, debt_id)
    returning amount as paid, debt - amount as owed`.execute(trx);
  return rows[0] ?? { paid: 0n, owed: 0n };
}

/** What the account owes; 0 for one that owes nothing, or that does not exist. */
export const debtOf = (accountId: Fragment): Fragment =>
  fragment`coalesce((select balance_micro_usd from account where kind = 'debt' and owner_id = ${accountId}), 0)`;

/** What the account owes, in micro-USD. */
export async function findDebt(db: Database, accountId: string): Promise<bigint> {
  const { rows } = await statement<{ owed: bigint }>`select ${debtOf(fragment`${accountId}::uuid`)} as owed`.execute(
    db,
  );
  return rows[0]?.owed ?? 0n;
}

/** Indebted accounts to which something came back otherwise than by a credit, as when a hold is voided; at most 1000. */
export async function solventDebtors(db: Database): Promise<string[]> {
  const { rows } = await statement<{ id: string }>`
    select id from account where is_indebted and balance_micro_usd > 0 limit 1000`.execute(db);
  return rows.map(({ id }) => id);
}
