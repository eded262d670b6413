import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { ADDED, book, contra, insertPosted } from './transfer.ts';

/** Processor money of a credited purchase (R61). A clawback is a debt, paid from the balance and from later credit. */
interface ProcessorMoney {
  readonly accountId: string;
  readonly amountMicroUsd: bigint;
  readonly reference: string;
}

export async function lockAccount(trx: Database, accountId: string): Promise<void> {
  await trx.selectFrom('account').select('id').where('id', '=', accountId).forNoKeyUpdate().execute();
}

/** Books a refund or dispute of an account that is locked. */
export async function applyClawback(
  trx: Database,
  kind: 'refund' | 'dispute',
  { accountId, amountMicroUsd, reference }: ProcessorMoney,
): Promise<void> {
  const debit = sql<string>`(select id from debt)`;
  await trx
    .with('debt', (qb) =>
      qb
        .insertInto('account')
        .values({ kind: 'debt', owner_id: accountId, balance_micro_usd: amountMicroUsd })
        .onConflict((oc) => oc.column('owner_id').where('kind', '=', sql.lit('debt')).doUpdateSet(ADDED))
        .returning('id'),
    )
    .with('entry', () => insertPosted(trx, { kind, debit, credit: contra.cardClearing, amountMicroUsd, reference }))
    .updateTable('account')
    .set({ is_indebted: true })
    .where('id', '=', accountId)
    .execute();
  testPoint('debt made');
  await collectDebt(trx, accountId);
}

/** Books money that the processor returned to an account that is locked; its debt is paid first. */
export async function reverseClawback(
  trx: Database,
  kind: 'refund_failed' | 'dispute_won',
  { accountId, amountMicroUsd, reference }: ProcessorMoney,
): Promise<void> {
  const entry = { kind, debit: contra.cardClearing, credit: accountId, amountMicroUsd, reference };
  await book(trx, accountId, amountMicroUsd, entry);
  await collectDebt(trx, accountId);
}

/** Pays the account's debt from its balance. Locks both, the account first, as everywhere. */
export async function collectDebt(trx: Database, accountId: string): Promise<{ paid: bigint; owed: bigint }> {
  await lockAccount(trx, accountId);
  const row = await trx
    .selectFrom('account as debt')
    .innerJoin('account as owner', 'owner.id', 'debt.owner_id')
    .select(['debt.id', 'debt.balance_micro_usd as debt', 'owner.balance_micro_usd as balance'])
    .where('debt.kind', '=', sql.lit('debt'))
    .where('debt.owner_id', '=', accountId)
    .executeTakeFirst();
  if (!row) return { paid: 0n, owed: 0n };
  const [debt, balance] = [row.debt ?? 0n, row.balance ?? 0n];
  const paid = balance < debt ? balance : debt;
  const isIndebted = debt > paid;
  if (paid === 0n) {
    await trx.updateTable('account').set({ is_indebted: isIndebted }).where('id', '=', accountId).execute();
    return { paid, owed: debt };
  }
  const { id } = row;
  const entry = { kind: 'debt_payment', debit: accountId, credit: id, amountMicroUsd: paid, reference: id } as const;
  await trx
    .with('entry', () => insertPosted(trx, entry))
    .updateTable('account')
    .set((eb) => ({
      balance_micro_usd: eb('balance_micro_usd', '-', paid),
      is_indebted: sql<boolean>`id = ${accountId}::uuid and ${isIndebted}::boolean`,
    }))
    .where('id', 'in', [accountId, id])
    .execute();
  return { paid, owed: debt - paid };
}

export async function findDebt(db: Database, accountId: string): Promise<bigint> {
  const debt = db.selectFrom('account').select('balance_micro_usd').where('kind', '=', sql.lit('debt'));
  return (await debt.where('owner_id', '=', accountId).executeTakeFirst())?.balance_micro_usd ?? 0n;
}

export async function solventDebtors(db: Database): Promise<string[]> {
  const debtors = db
    .selectFrom('account')
    .select('id')
    .where((eb) => eb.ref('is_indebted'));
  const rows = await debtors.where('balance_micro_usd', '>', 0n).limit(sql.lit(1000)).execute();
  return rows.map(({ id }) => id);
}

export async function totalDebt(db: Database): Promise<number> {
  const debts = db.selectFrom('account').where('kind', '=', sql.lit('debt'));
  const { owed } = await debts
    .select((eb) => eb.fn.sum<string | null>('balance_micro_usd').as('owed'))
    .executeTakeFirstOrThrow();
  return Number(owed);
}
