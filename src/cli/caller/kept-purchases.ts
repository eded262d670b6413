import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { KeptSpeech } from '../../budget/kept-speech.ts';
import type { Budget } from '../../client/budget.ts';
import type { PendingPurchase } from '../../client/pending-purchase.ts';
import { ownFolder } from '../../lib/private-files.ts';
import { fileNameOf, KeptAudio } from './kept-audio.ts';
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
    await writeSettingsFile(join(this.#folder, FOLDER), fileNameOf(kept.pending.identifier, SUFFIX), kept);
  }

  async find(identifier: string): Promise<KeptPurchase | undefined> {
    return (await readSettingsFile(join(this.#folder, FOLDER), fileNameOf(identifier, SUFFIX))) as
      | KeptPurchase
      | undefined;
  }

  async list(): Promise<readonly KeptPurchase[]> {
    const names = await readdir(join(this.#folder, FOLDER)).catch(() => []);
    const files = names.filter((name) => name.endsWith(SUFFIX)).sort();
    const kept = await Promise.all(files.map((name) => readSettingsFile(join(this.#folder, FOLDER), name)));
    return kept.filter((each) => each !== undefined) as KeptPurchase[];
  }

  async drop(identifier: string): Promise<void> {
    await rm(join(this.#folder, FOLDER, fileNameOf(identifier, SUFFIX)), { force: true });
  }
}

/** The same, for those who have audio that was to go to no file. */
export function keptSpeech(folder: string): KeptSpeech {
  const kept = new KeptPurchases(folder);
  return {
    keep: async (pending) => {
      if (!(await kept.find(pending.identifier))) await kept.keep({ pending, out: null });
    },
    find: async (identifier) => (await kept.find(identifier))?.pending,
    list: async () => (await kept.list()).map(({ pending }) => pending).filter(({ kind }) => kind === 'speech'),
    drop: (identifier) => kept.drop(identifier),
    keepAudio: (identifier, audio) => new KeptAudio(folder).keep(identifier, audio),
  };
}

/** Is told of a purchase that is about to leave, and of one that was not charged. Waited for both times. */
export interface Watcher {
  onPending(pending: PendingPurchase): Promise<void>;
  onNotCharged(pending: PendingPurchase): Promise<void>;
}

/** The budget, with somebody who watches what becomes of its purchases. */
export function watched(budget: Budget, watcher: Watcher): Budget {
  return {
    reserve: async (purchase) => {
      const reservation = await budget.reserve(purchase);
      let recorded: PendingPurchase | undefined;
      return {
        record: async (pending) => {
          await reservation.record(pending);
          recorded = pending;
          await watcher.onPending(pending);
        },
        settle: async (chargedMicroUsd, known) => {
          await reservation.settle(chargedMicroUsd, known);
          if (recorded && chargedMicroUsd === 0n) await watcher.onNotCharged(recorded);
        },
      };
    },
  };
}
