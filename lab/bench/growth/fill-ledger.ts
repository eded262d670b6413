import { sql } from 'kysely';
import type { Database } from '../../../src/db/database.ts';
import { claimInstance } from '../../../src/ledger/database-identity.ts';
import { fillAccounts } from './fill/accounts.ts';
import { fillRequests } from './fill/activity.ts';
import type { Progress } from './fill/chunks.ts';
import { fillDeposits, fillPurchases } from './fill/funding.ts';
import { ASSET, createNames, dropNames, type Known, NETWORK } from './fill/names.ts';
import type { FillSizes } from './fill/sizes.ts';
import { fillBeside, fillUnderWay } from './fill/under-way.ts';

export interface FillOptions {
  readonly known?: Partial<Known>;
  readonly progress?: Progress;
}

/**
 * Fills an empty, migrated database as the service would have left it. Balances equal the sums of their transfers, so
 * the audit finds nothing. Needs the owner's role, because it writes past dates. Runs VACUUM and ANALYZE at the end.
 */
export async function fillLedger(
  db: Database,
  sizes: FillSizes,
  { known = {}, progress = () => {} }: FillOptions = {},
): Promise<void> {
  await claimInstance(db, { denomination: { network: NETWORK, asset: ASSET }, livemode: false });
  await createNames(db, { cards: [], wallets: [], ...known }, sizes.accounts / 2);
  for (const fill of [fillPurchases, fillDeposits, fillRequests, fillUnderWay, fillAccounts, fillBeside]) {
    await fill(db, sizes, progress);
  }
  await dropNames(db);
  progress('vacuum and analyze', 0, 1);
  await sql`vacuum (analyze)`.execute(db);
  progress('vacuum and analyze', 1, 1);
}

/** Ids of card accounts, spread over the whole ledger. */
export async function filledCards(db: Database, { accounts }: FillSizes, count: number): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select md5('card ' || (1 + (place - 1) * ${accounts / 2}::bigint / ${count}::bigint))::uuid as id
    from generate_series(1, ${count}::bigint) place`.execute(db);
  return rows.map(({ id }) => id);
}
