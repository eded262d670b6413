import type { Database } from '../db/database.ts';
import { type AdjustmentResult, adjustAccount, setFrozen } from './adjustments.ts';
import { lockAccount } from './debts.ts';
import { type OperatorAction, recordAction } from './operator-action.ts';

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
