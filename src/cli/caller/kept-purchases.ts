import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Budget } from '../../client/budget.ts';
import type { PendingPurchase } from '../../client/pending-purchase.ts';
import { ownFolder } from '../../lib/private-files.ts';
import { readSettingsFile, writeSettingsFile } from './settings-folder.ts';

const FOLDER = 'pending';
const SUFFIX = '.json';

/** A purchase whose end was not seen yet, and the file that its audio was to be written to. */
export interface KeptPurchase {
  readonly pending: PendingPurchase;
  /** Absolute; null where it had no file. */
  readonly out: string | null;
}

/** The purchases of the commands, from before their requests leave until what was bought is here. */
export class KeptPurchases {
  readonly #folder: string;

  /** @param folder of the settings */
  constructor(folder: string) {
    this.#folder = folder;
  }

  async keep(kept: KeptPurchase): Promise<void> {
    await ownFolder(this.#folder);
    await writeSettingsFile(join(this.#folder, FOLDER), fileOf(kept.pending.identifier), kept);
  }

  async find(identifier: string): Promise<KeptPurchase | undefined> {
    return (await readSettingsFile(join(this.#folder, FOLDER), fileOf(identifier))) as KeptPurchase | undefined;
  }

  async list(): Promise<readonly KeptPurchase[]> {
    const names = await readdir(join(this.#folder, FOLDER)).catch(() => []);
    const files = names.filter((name) => name.endsWith(SUFFIX)).sort();
    const kept = await Promise.all(files.map((name) => readSettingsFile(join(this.#folder, FOLDER), name)));
    return kept.filter((each) => each !== undefined) as KeptPurchase[];
  }

  async drop(identifier: string): Promise<void> {
    await rm(join(this.#folder, FOLDER, fileOf(identifier)), { force: true });
  }
}

/** The budget, which tells what is about to leave once that is on the disk. */
export function watched(budget: Budget, onPending: (pending: PendingPurchase) => Promise<void>): Budget {
  return {
    reserve: async (purchase) => {
      const reservation = await budget.reserve(purchase);
      return {
        record: async (pending) => {
          await onPending(pending);
          await reservation.record(pending);
        },
        settle: (chargedMicroUsd) => reservation.settle(chargedMicroUsd),
      };
    },
  };
}

/** A card request that is no job would be paid again when it is repeated. */
export const isRepeatable = ({ flow, headers }: PendingPurchase): boolean =>
  flow !== 'card' || 'idempotency-key' in headers;

/** An identifier can be any text. */
const fileOf = (identifier: string): string => `${encodeURIComponent(identifier).replaceAll('.', '%2E')}${SUFFIX}`;
