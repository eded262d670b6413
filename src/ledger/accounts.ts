import type { Database } from '../db/database.ts';
import { isUuid } from '../uuid.ts';
import { isOfMode } from './instance.ts';

export interface CardAccount {
  readonly id: string;
  readonly balanceMicroUsd: bigint;
}

/** True when the text can be an account id at all; anything else is simply unknown (R57). */
export const isAccountId = isUuid;

/**
 * The card account that the bearer id names, or undefined when there is none (R12, R57).
 * @param options.livemode that the account must be of; an account of the other mode is unknown
 * @param options.lock keeps everybody else from changing the account until the transaction ends
 */
export async function findCardAccount(
  db: Database,
  id: string,
  { livemode, lock = false }: { livemode?: boolean | undefined; lock?: boolean } = {},
): Promise<CardAccount | undefined> {
  if (!isAccountId(id)) return undefined;
  const row = await db
    .selectFrom('account')
    .select(['id', 'balance_micro_usd'])
    .where('id', '=', id)
    .where('kind', '=', 'card')
    .where(isOfMode(livemode ?? null))
    .$if(lock, (query) => query.forUpdate())
    .executeTakeFirst();
  return row && { id: row.id, balanceMicroUsd: row.balance_micro_usd ?? 0n };
}
