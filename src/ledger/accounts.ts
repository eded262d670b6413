import type { Database } from '../db/database.ts';
import { type Fragment, fragment, statement } from '../db/statement.ts';
import { isUuid } from '../lib/uuid.ts';
import { isOfMode } from './instance.ts';

export interface CardAccount {
  readonly id: string;
  readonly balanceMicroUsd: bigint;
}

/** True when the text can be an account id at all; anything else is simply unknown (R57). */
export const isAccountId = isUuid;

/**
 * For a `where` on accounts: it is the card account with this id, of this mode.
 * @param livemode null for either mode
 */
const isCardAccount = (id: string | null, livemode: boolean | null): Fragment =>
  fragment`account.id = ${id}::uuid and kind = 'card' and ${isOfMode(livemode)}`;

/** Whether there is that card account; null names none. */
export const cardAccountExists = (id: string | null, livemode: boolean | null): Fragment =>
  fragment`exists (select from account where ${isCardAccount(id, livemode)})`;

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
  const { rows } = await statement<{ id: string; balance: bigint }>`
    select id, balance_micro_usd as balance from account where ${isCardAccount(id, livemode ?? null)}
    ${lock ? fragment`for update` : fragment``}`.execute(db);
  const [row] = rows;
  return row && { id: row.id, balanceMicroUsd: row.balance };
}
