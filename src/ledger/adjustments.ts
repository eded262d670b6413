import type { Database } from '../db/database.ts';
import { now } from '../db/expressions.ts';
import { selectCardAccount } from './accounts.ts';
import { collectDebt } from './debts.ts';
import { book, contra } from './transfer.ts';

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
export async function adjustAccount(
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
export async function setFrozen(trx: Database, accountId: string, isFrozen: boolean): Promise<boolean> {
  const account = trx
    .updateTable('account')
    .set({ frozen_at: isFrozen ? now : null })
    .where('id', '=', accountId)
    .where('kind', '=', 'card')
    .where('frozen_at', isFrozen ? 'is' : 'is not', null);
  return (await account.executeTakeFirst()).numUpdatedRows > 0n;
}
