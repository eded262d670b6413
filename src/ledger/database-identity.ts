import { type RawBuilder, type SqlBool, sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** The token of the USDC balances, its address in lower case. */
type Denomination = { readonly network: string; readonly asset: string };

type Ownership = { readonly denomination: Denomination | undefined; readonly livemode: boolean | undefined };

/** Returns whose money the database holds. What is undecided becomes `wanted`, for ever. */
export async function claimInstance(db: Database, wanted: Ownership): Promise<Ownership> {
  const known = await readInstance(db);
  if (!known.denomination && wanted.denomination) {
    const { network, asset } = wanted.denomination;
    await db.updateTable('instance').set({ network, asset }).where('network', 'is', null).execute();
  } else if (known.livemode !== undefined || wanted.livemode === undefined) {
    return known;
  }
  if (known.livemode === undefined && wanted.livemode !== undefined) {
    const mode = { card_livemode: wanted.livemode };
    await db.updateTable('instance').set(mode).where('card_livemode', 'is', null).execute();
  }
  return readInstance(db);
}

export async function readInstance(db: Database): Promise<Ownership> {
  const columns = ['network', 'asset', 'card_livemode'] as const;
  const { network, asset, card_livemode } = await db.selectFrom('instance').select(columns).executeTakeFirstOrThrow();
  const denomination = network === null || asset === null ? undefined : { network, asset };
  return { denomination, livemode: card_livemode ?? undefined };
}

/** Condition: the account is of this processor mode, or of either (null). Old accounts have the instance's mode. */
export const isOfMode = (livemode: boolean | null): RawBuilder<SqlBool> =>
  sql`is_of_mode(account.livemode, ${livemode}::boolean)`;

export async function findInstanceId(db: Database): Promise<string> {
  return (await db.selectFrom('instance').select('id').executeTakeFirstOrThrow()).id;
}

interface MoneySettings {
  readonly x402: { readonly asset: { readonly network: string; readonly address: string } } | undefined;
  readonly card: { readonly livemode: boolean } | undefined;
}

type Mismatch = { readonly database: Denomination; readonly settings: Denomination };

/** Fixed by the first use of the database: balances in a test network's token must buy nothing on the real network. */
export class DatabaseIdentity {
  readonly #db: Database;
  readonly #wanted: Ownership;
  #asking: Promise<Mismatch | undefined> | undefined;
  #isKnown = false;
  #mismatch: Mismatch | undefined;

  constructor(db: Database, { x402, card }: MoneySettings) {
    this.#db = db;
    const denomination = x402 && { network: x402.asset.network, asset: x402.asset.address.toLowerCase() };
    this.#wanted = { denomination, livemode: card?.livemode };
  }

  get isKnown(): boolean {
    return this.#isKnown;
  }

  get mismatch(): Mismatch | undefined {
    return this.#mismatch;
  }

  async check(): Promise<Mismatch | undefined> {
    if (this.#isKnown) return this.#mismatch;
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #ask(): Promise<Mismatch | undefined> {
    const { denomination: settings } = this.#wanted;
    const { denomination: database } = await claimInstance(this.#db, this.#wanted);
    const isSame = database?.network === settings?.network && database?.asset === settings?.asset;
    if (database && settings && !isSame) this.#mismatch = { database, settings };
    this.#isKnown = true;
    return this.#mismatch;
  }
}

export function describeMismatch({ database, settings }: Mismatch): string {
  return (
    `The database in DATABASE_URL is for the token ${database.asset} on ${database.network}, but X402_ASSET and X402_NETWORK are ` +
    `${settings.asset} and ${settings.network}. Use another DATABASE_URL, or set X402_NETWORK=${database.network} and X402_ASSET=${database.asset}.`
  );
}
