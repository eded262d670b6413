import type { Database } from '../db/database.ts';
import { fragment, statement } from '../db/statement.ts';
import { contra } from './contra.ts';
import { collectDebt, lockAccount } from './debts.ts';
import { type Entry, insertTransfer } from './transfer.ts';

export type AdjustmentResult =
  | {
      readonly outcome: 'adjusted';
      readonly transferId: bigint;
      /** After it, and after what was paid of a debt at once. */
      readonly balanceMicroUsd: bigint;
      readonly debtPaidMicroUsd: bigint;
    }
  /** The account has less than what was to be taken. */
  | { readonly outcome: 'too_little'; readonly balanceMicroUsd: bigint }
  | { readonly outcome: 'unknown_account' };

/**
 * Gives a card account money that nobody paid, or takes some from it, by the operator's word. A debt is paid from it
 * first (R61); a balance never falls below 0.
 * @param amountMicroUsd above 0 to give, below 0 to take
 * @param reference the key of what the operator did
 */
export async function adjustAccount(
  trx: Database,
  accountId: string,
  amountMicroUsd: bigint,
  reference: string,
): Promise<AdjustmentResult> {
  await lockAccount(trx, accountId);
  const { rows: found } = await statement<{ balance: bigint }>`
    select balance_micro_usd as balance from account where id = ${accountId}::uuid and kind = 'card'`.execute(trx);
  const [account] = found;
  if (!account) return { outcome: 'unknown_account' };
  if (account.balance + amountMicroUsd < 0n) return { outcome: 'too_little', balanceMicroUsd: account.balance };
  const isGift = amountMicroUsd > 0n;
  const entry: Entry = {
    kind: 'adjustment',
    debit: isGift ? contra.cardAdjustments : accountId,
    credit: isGift ? accountId : contra.cardAdjustments,
    amount: isGift ? amountMicroUsd : -amountMicroUsd,
    reference,
    traceId: null,
  };
  const { rows } = await statement<{ id: bigint }>`
    with changed as (
      update account set balance_micro_usd = balance_micro_usd + ${amountMicroUsd} where id = ${accountId} returning id
    )
    ${insertTransfer(entry, fragment`changed`)} returning id`.execute(trx);
  const { paid } = await collectDebt(trx, accountId);
  return {
    outcome: 'adjusted',
    transferId: (rows[0] as { id: bigint }).id,
    balanceMicroUsd: account.balance + amountMicroUsd - paid,
    debtPaidMicroUsd: paid,
  };
}

/** Lets nothing be spent from a card account any more, or lets it again. False when that was so before. */
export async function setFrozen(trx: Database, accountId: string, isFrozen: boolean): Promise<boolean> {
  const { rows } = await statement`
    update account set frozen_at = case when ${isFrozen}::boolean then now() end
    where id = ${accountId}::uuid and kind = 'card' and (frozen_at is not null) <> ${isFrozen}::boolean
    returning id`.execute(trx);
  return rows.length > 0;
}
