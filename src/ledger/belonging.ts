import type { Database } from '../db/database.ts';
import { claimInstance, type Denomination, type Ownership } from './instance.ts';

/** What the settings tell of the money. */
export interface MoneySettings {
  /** Undefined while payment under x402 is off. */
  readonly x402: { readonly asset: { readonly network: string; readonly address: string } } | undefined;
  /** Undefined while payment by card is off. */
  readonly card: { readonly livemode: boolean } | undefined;
}

/** The database holds money of another network or asset than the settings name. */
export interface Mismatch {
  readonly database: Denomination;
  readonly settings: Denomination;
}

/**
 * Whether the database's money is that of the settings. It belongs to the network and asset that it was first used with:
 * balances in a test network's token must buy nothing on the real one, and the chain knows its own payments only.
 */
export class Belonging {
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

  /** True once the database has told; it tells the same for ever. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** As far as it is known. */
  get mismatch(): Mismatch | undefined {
    return this.#mismatch;
  }

  /** Asks the database, until it has told once. Throws while it is away, or not set up. */
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

/** The mismatch as the text that a start which can't go on prints. */
export function describeMismatch({ database, settings }: Mismatch): string {
  return (
    `DATABASE_URL names a database of ${database.network} and ${database.asset}, and X402_NETWORK and X402_ASSET are ` +
    `${settings.network} and ${settings.asset}. Balances of the one are no money of the other: use another ` +
    `DATABASE_URL, or set X402_NETWORK=${database.network} and X402_ASSET=${database.asset}.`
  );
}
