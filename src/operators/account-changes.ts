import type { Database } from '../db/database.ts';
import { type AdjustmentResult, adjustAccount, setFrozen } from '../ledger/adjustments.ts';
import { lockAccount } from '../ledger/debts.ts';
import { type Deed, findAction, recordAction } from './operator-action.ts';

/** Most that one adjustment moves, in micro-USD: a million dollars is a slip of the finger. */
export const MAX_ADJUSTMENT = 1_000_000_000_000n;

/** Freezes a card account, or ends that, and writes it down. False when it was so before, or there is no such account. */
export async function freezeAccount(db: Database, accountId: string, isFrozen: boolean, deed: Deed): Promise<boolean> {
  return db.transaction().execute(async (trx) => {
    const isChanged = await setFrozen(trx, accountId, isFrozen);
    if (isChanged) await recordAction(trx, { ...deed, action: isFrozen ? 'freeze' : 'unfreeze', subject: accountId });
    return isChanged;
  });
}

/** What is adjusted. */
export interface Adjustment {
  readonly accountId: string;
  /** Above 0 to give, below 0 to take; at most MAX_ADJUSTMENT either way. */
  readonly amountMicroUsd: bigint;
  /** A UUID of this adjustment: asked for again, it changes nothing. */
  readonly key: string;
}

/** Adjusts a balance, with the entry of the books and that of the operators in one transaction. */
export async function adjustBalance(
  db: Database,
  { accountId, amountMicroUsd, key }: Adjustment,
  deed: Deed,
): Promise<AdjustmentResult | { readonly outcome: 'made_before' | 'key_of_another' }> {
  const detail = { amountMicroUsd: Number(amountMicroUsd) };
  return db.transaction().execute(async (trx) => {
    await lockAccount(trx, accountId);
    const earlier = await usedFor(trx, key, { action: 'adjust', subject: accountId, detail });
    if (earlier !== 'unused') return { outcome: earlier };
    const adjusted = await adjustAccount(trx, accountId, amountMicroUsd, key);
    if (adjusted.outcome !== 'adjusted') return adjusted;
    await recordAction(trx, {
      ...{ ...deed, action: 'adjust', subject: accountId, key, transferId: adjusted.transferId, detail },
    });
    return adjusted;
  });
}

/** Whether a key has been used already, and for this very change. */
export async function usedFor(
  db: Database,
  key: string,
  wanted: { readonly action: string; readonly subject: string; readonly detail: Readonly<Record<string, unknown>> },
): Promise<'unused' | 'made_before' | 'key_of_another'> {
  const found = await findAction(db, key);
  if (!found) return 'unused';
  const isSame =
    found.action === wanted.action &&
    found.subject === wanted.subject &&
    JSON.stringify(found.detail) === JSON.stringify(wanted.detail);
  return isSame ? 'made_before' : 'key_of_another';
}
