import type { Database } from '../db/database.ts';

export interface CardAccount {
  readonly id: string;
  readonly balanceMicroUsd: bigint;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** True when the text can be an account id at all; anything else is simply unknown (R57). */
export const isAccountId = (id: string): boolean => UUID.test(id);

/** The card account that the bearer id names, or undefined when there is none (R12, R57). */
export async function findCardAccount(db: Database, id: string): Promise<CardAccount | undefined> {
  if (!isAccountId(id)) return undefined;
  const row = await db
    .selectFrom('account')
    .select(['id', 'balance_micro_usd'])
    .where('id', '=', id)
    .where('kind', '=', 'card')
    .executeTakeFirst();
  return row && { id: row.id, balanceMicroUsd: row.balance_micro_usd ?? 0n };
}
