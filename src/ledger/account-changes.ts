import type { Database } from '../db/database.ts';
import { now } from '../db/expressions.ts';
import { selectCardAccount } from './accounts.ts';
import { collectDebt, lockAccount } from './debts.ts';
import { type OperatorAction, recordAction } from './operator-action.ts';
import { book, contra } from './transfer.ts';

/** In micro-USD; more than 10,000 dollars is a typing error, such as an amount in micro-USD. */
export const MAX_ADJUSTMENT = 10_000_000_000n;

/** Returns false if nothing changed, or if there is no such account. */
export async function freezeAccount(
  db: Database,
  accountId: string,
  isFrozen: boolean,
  operatorAction: OperatorAction,
): Promise<boolean> {
  return db.transaction().execute(async (trx) => {
    const isChanged = await setFrozen(trx, accountId, isFrozen);
    if (isChanged)
      await recordAction(trx, { ...operatorAction, action: isFrozen ? 'freeze' : 'unfreeze', subject: accountId });
    return isChanged;
  });
}

interface Adjustment {
  readonly accountId: string;
  readonly amountMicroUsd: bigint;
  /** Idempotency key, a UUID. */
  readonly key: string;
}

export async function adjustBalance(
  db: Database,
  { accountId, amountMicroUsd, key }: Adjustment,
  operatorAction: OperatorAction,
): Promise<AdjustmentResult | { readonly outcome: 'made_before' | 'key_of_another' }> {
  const detail = { amountMicroUsd: Number(amountMicroUsd) };
  return db.transaction().execute(async (trx) => {
    await lockAccount(trx, accountId);
    const earlier = await usedFor(trx, key, { action: 'adjust', subject: accountId, detail });
    if (earlier !== 'unused') return { outcome: earlier };
    const adjusted = await adjustAccount(trx, accountId, amountMicroUsd, key);
    if (adjusted.outcome !== 'adjusted') return adjusted;
    const { transferId } = adjusted;
    await recordAction(trx, { ...operatorAction, action: 'adjust', subject: accountId, key, transferId, detail });
    return adjusted;
  });
}

export async function usedFor(
  db: Database,
  key: string,
  wanted: { readonly action: string; readonly subject: string; readonly detail: Readonly<Record<string, unknown>> },
): Promise<'unused' | 'made_before' | 'key_of_another'> {
  const actions = db.selectFrom('operator_action').select(['action', 'subject', 'detail']);
  const found = await actions.where('key', '=', key).executeTakeFirst();
  if (!found) return 'unused';
  const isSame =
    found.action === wanted.action &&
    found.subject === wanted.subject &&
    JSON.stringify(found.detail) === JSON.stringify(wanted.detail);
  return isSame ? 'made_before' : 'key_of_another';
}

export type AdjustmentResult =
  | {
      readonly outcome: 'adjusted';
      readonly transferId: string;
      readonly balanceMicroUsd: bigint;
      readonly debtPaidMicroUsd: bigint;
    }
  | { readonly outcome: 'too_little'; readonly balanceMicroUsd: bigint }
  | { readonly outcome: 'unknown_account' };

/** Credits or debits a card account for an operator. A debt is paid first (R61); the balance never falls below 0. */
async function adjustAccount(
  trx: Database,
  accountId: string,
  amountMicroUsd: bigint,
  reference: string,
): Promise<AdjustmentResult> {
  const found = await selectCardAccount(trx, accountId, null).forNoKeyUpdate().executeTakeFirst();
  if (!found) return { outcome: 'unknown_account' };
  const balanceMicroUsd = found.balance_micro_usd ?? 0n;
  if (balanceMicroUsd + amountMicroUsd < 0n) return { outcome: 'too_little', balanceMicroUsd };
  const isGift = amountMicroUsd > 0n;
  const transferId = await book(trx, accountId, amountMicroUsd, {
    kind: 'adjustment',
    debit: isGift ? contra.cardAdjustments : accountId,
    credit: isGift ? accountId : contra.cardAdjustments,
    amountMicroUsd: isGift ? amountMicroUsd : -amountMicroUsd,
    reference,
  });
  const { paid } = await collectDebt(trx, accountId);
  return {
    outcome: 'adjusted',
    transferId,
    balanceMicroUsd: balanceMicroUsd + amountMicroUsd - paid,
    debtPaidMicroUsd: paid,
  };
}

/** Blocks or allows spending from a card account. Returns false if nothing changed. */
async function setFrozen(trx: Database, accountId: string, isFrozen: boolean): Promise<boolean> {
  const account = trx
    .updateTable('account')
    .set({ frozen_at: isFrozen ? now : null })
    .where('id', '=', accountId)
    .where('kind', '=', 'card')
    .where('frozen_at', isFrozen ? 'is' : 'is not', null);
  return (await account.executeTakeFirst()).numUpdatedRows > 0n;
}
