import { readdir, readFile, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { ownFolder, ownSubfolder, replaceOwnFile } from '../../lib/private-files.ts';
import { wholeAudio } from '../../speech/whole-audio.ts';
import type { SavedSpeech, WholeAudio } from '../budget/purchases.ts';
import { type Budget, type PendingPurchase, type Speech, SpeechgateError } from '../client/index.ts';
import { isRepeatable } from '../client/pending-purchase.ts';
import { EXTENSIONS, openAudioFile, otherFormat } from './audio-file.ts';
import type { OutputStream } from './output.ts';
import type { Resumed } from './resume-command.ts';
import { readSettingsFile, writeSettingsFile } from './settings-folder.ts';

const SUFFIX = '.json';

export interface SavedPurchase {
  readonly pending: PendingPurchase;
  /** Absolute; null without a file. */
  readonly out: string | null;
}

/** Keeps purchases from before the request is sent until their audio is delivered. */
export class SavedPurchases implements SavedSpeech {
  readonly #settings: string;
  readonly #pending: string;
  readonly #audio: string;

  constructor(folder: string) {
    this.#settings = folder;
    this.#pending = join(folder, 'pending');
    this.#audio = join(folder, 'audio');
  }

  /** Without `out` it does not replace a saved purchase. */
  async save(pending: PendingPurchase, out: string | null = null): Promise<void> {
    if (out === null && (await this.find(pending.identifier))) return;
    await ownFolder(this.#settings);
    const saved: SavedPurchase = { pending, out };
    await writeSettingsFile(this.#pending, fileNameOf(pending.identifier, SUFFIX), saved);
  }

  async find(identifier: string): Promise<SavedPurchase | undefined> {
    return (await readSettingsFile(this.#pending, fileNameOf(identifier, SUFFIX))) as SavedPurchase | undefined;
  }

  async list(): Promise<readonly SavedPurchase[]> {
    const names = await readdir(this.#pending).catch(() => []);
    const files = names.filter((name) => name.endsWith(SUFFIX)).sort();
    const saved = await Promise.all(files.map((name) => readSettingsFile(this.#pending, name)));
    return saved.filter((each) => each !== undefined) as SavedPurchase[];
  }

  async drop(identifier: string): Promise<void> {
    await rm(join(this.#pending, fileNameOf(identifier, SUFFIX)), { force: true });
  }

  /** Whether its file was written after the purchase, so that it may hold other audio. */
  async hasNewerFile({ pending, out }: SavedPurchase): Promise<boolean> {
    if (out === null) return false;
    const purchasePath = join(this.#pending, fileNameOf(pending.identifier, SUFFIX));
    const [file, purchase] = await Promise.all([out, purchasePath].map((path) => stat(path).catch(() => undefined)));
    return file !== undefined && purchase !== undefined && file.isFile() && file.mtimeMs > purchase.mtimeMs;
  }

  async saveAudio(identifier: string, { contentType, bytes }: WholeAudio): Promise<void> {
    await ownFolder(this.#settings);
    const folder = await ownSubfolder(this.#audio);
    const path = join(folder, fileNameOf(identifier, EXTENSIONS[contentType]));
    await replaceOwnFile(path, wholeAudio(contentType, bytes));
  }

  /** Paid audio that could not be delivered to its program. */
  async listAudio() {
    const names = await readdir(this.#audio).catch(() => []);
    const types = Object.keys(EXTENSIONS) as Speech['contentType'][];
    return types.flatMap((contentType) => {
      const extension = EXTENSIONS[contentType];
      return names
        .filter((name) => name.endsWith(extension))
        .map((name) => ({ name, contentType, identifier: decodeURIComponent(name.slice(0, -extension.length)) }));
    });
  }

  /** @param out default: a file in the working directory, named after the identifier */
  async moveAudio(identifier: string, out: string | undefined, stdout: OutputStream): Promise<Resumed> {
    const found = (await this.listAudio()).find((audio) => audio.identifier === identifier);
    if (!found)
      throw new SpeechgateError(
        `Another command has already written the audio of the purchase ${identifier} to its file. You were charged only once.`,
      );
    const { name, contentType } = found;
    const path = join(this.#audio, name);
    const file = out ?? resolve(name);
    const target = await openAudioFile(file, stdout, 'The audio stays saved.');
    try {
      const content = await readFile(path);
      const audio = new Blob([content]).stream();
      const bytes = await target.write({ audio, bytes: async () => content, contentType });
      await rm(path);
      const line = `${file}: ${bytes} bytes, paid by an earlier request${otherFormat(file, contentType)}`;
      return { outcome: 'bought', identifier, file, bytes, contentType, line };
    } finally {
      await target.close();
    }
  }
}

/** Identifiers can contain any characters. */
const fileNameOf = (identifier: string, suffix: string): string =>
  `${encodeURIComponent(identifier).replaceAll('.', '%2E')}${suffix}`;

/** The purchase that a command has sent: saved until it is known to cost nothing, or its audio is written. */
export class SentPurchase {
  pending: PendingPurchase | undefined;
  readonly #saved: SavedPurchases;
  readonly #out: string | null;

  /** @param out the file for a later resume */
  constructor(saved: SavedPurchases, out: string | null = null) {
    this.#saved = saved;
    this.#out = out;
  }

  async save(pending: PendingPurchase): Promise<void> {
    this.pending = pending;
    await this.#saved.save(pending, this.#out);
  }

  async drop(): Promise<void> {
    if (this.pending) await this.#saved.drop(this.pending.identifier);
    this.pending = undefined;
  }

  /** Saves each purchase that the budget records and that can be repeated. */
  watch(budget: Budget): Budget {
    return {
      reserve: async (purchase) => {
        const reservation = await budget.reserve(purchase);
        let isRecorded = false;
        return {
          record: async (pending) => {
            await reservation.record(pending);
            isRecorded = true;
            if (isRepeatable(pending)) await this.save(pending);
          },
          settle: async (chargedMicroUsd, known) => {
            await reservation.settle(chargedMicroUsd, known);
            if (isRecorded && chargedMicroUsd === 0n) await this.drop();
          },
        };
      },
    };
  }
}
