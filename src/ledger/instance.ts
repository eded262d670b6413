import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { type Fragment, fragment } from '../db/statement.ts';

/** What balances in USDC are made of: a token on one network, its address in lower case. */
export interface Denomination {
  /** CAIP-2 name. */
  readonly network: string;
  readonly asset: string;
}

/** Whose money a database holds, as far as that is decided. */
export interface Ownership {
  readonly denomination: Denomination | undefined;
  /** The mode of card accounts that are older than modes. */
  readonly livemode: boolean | undefined;
}

/**
 * Tells whose money the database holds. What is not decided becomes what is given here, for ever; of several who ask at
 * once, all are told the same.
 * @param wanted of the settings; undefined for a flow that is off
 */
export async function claimInstance(db: Database, wanted: Ownership): Promise<Ownership> {
  const known = await readInstance(db);
  if (!known.denomination && wanted.denomination) {
    const { network, asset } = wanted.denomination;
    await sql`update instance set network = ${network}, asset = ${asset} where network is null`.execute(db);
  } else if (known.livemode !== undefined || wanted.livemode === undefined) {
    return known;
  }
  if (known.livemode === undefined && wanted.livemode !== undefined) {
    await sql`update instance set card_livemode = ${wanted.livemode} where card_livemode is null`.execute(db);
  }
  return readInstance(db);
}

/** What is decided so far. */
export async function readInstance(db: Database): Promise<Ownership> {
  const columns = ['network', 'asset', 'card_livemode'] as const;
  const { network, asset, card_livemode } = await db.selectFrom('instance').select(columns).executeTakeFirstOrThrow();
  const denomination = network === null || asset === null ? undefined : { network, asset };
  return { denomination, livemode: card_livemode ?? undefined };
}

/**
 * For a `where`: the account is of this mode of the card processor. One that is older than modes is of the mode that the
 * instance holds for such, or of the first key's; the instance is read for those only.
 * @param livemode null for accounts of either mode
 */
export const isOfMode = (livemode: boolean | null): Fragment =>
  fragment`is_of_mode(account.livemode, ${livemode}::boolean)`;

/** Names this database to the card processor. */
export async function findInstanceId(db: Database): Promise<string> {
  return (await db.selectFrom('instance').select('id').executeTakeFirstOrThrow()).id;
}
