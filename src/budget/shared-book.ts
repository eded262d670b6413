import { basename, dirname, join } from 'node:path';
import { FileLock, pause } from '../lib/file-lock.ts';
import { ownFolder, ownSubfolder } from '../lib/private-files.ts';
import type { Book } from './book.ts';
import { BudgetFile } from './budget-file.ts';
import type { Entry } from './entry.ts';

import { hasEnded, Owner, removeEnded } from './owner.ts';

/** What is to be written because of what the book says, and what that means to whoever asked. */
interface Change<T> {
  readonly entries: readonly Entry[];
  readonly result: T;
}

interface Waiting {
  /** Tells what it adds to the book; what it throws is kept for whoever asked. */
  decide(book: Book): Promise<readonly Entry[]>;
  end(failure?: unknown): void;
}

/** A book that processes share, each change made alone and kept before it is told. */
export class SharedBook {
  readonly #file: BudgetFile;
  readonly #lock: FileLock;
  readonly #owners: string;
  #owner: Owner | undefined;
  #waiting: Waiting[] = [];
  #running: Promise<void> | undefined;
  #isClosed = false;

  private constructor(file: BudgetFile, lock: FileLock, owners: string) {
    this.#file = file;
    this.#lock = lock;
    this.#owners = owners;
  }

  /** @param path of the file; beside it are its lock and the folder of those that use it */
  static async open(path: string): Promise<SharedBook> {
    const place = join(await ownFolder(dirname(path)), basename(path));
    const owners = await ownSubfolder(`${place}.owners`);
    const file = new BudgetFile(place);
    const shared = new SharedBook(file, await FileLock.open(`${place}.lock`), owners);
    try {
      await shared.change(async () => {
        await file.removeUnfinished();
        await removeEnded(owners);
        shared.#owner = await Owner.claim(owners);
        return { entries: [], result: undefined };
      });
      return shared;
    } catch (error) {
      await shared.close();
      throw error;
    }
  }

  /** The name of this user of the book. */
  get owner(): string {
    return (this.#owner as Owner).id;
  }

  /** Whether an owner's process has ended; to be asked within a change only. */
  hasEnded(owner: string): Promise<boolean> {
    return hasEnded(this.#owners, owner);
  }

  /**
   * Makes a change while nobody else does, in this process or another one. It is on the disk when this resolves; when
   * this rejects, it is not made. Changes that wait at the same time are written together.
   */
  change<T>(decide: (book: Book) => Change<T> | Promise<Change<T>>): Promise<T> {
    if (this.#isClosed) return Promise.reject(new Error('The budget is closed.'));
    return new Promise((resolve, reject) => {
      let result: T;
      this.#waiting.push({
        decide: async (book) => {
          const change = await decide(book);
          result = change.result;
          return change.entries;
        },
        end: (failure) => (failure === undefined ? resolve(result) : reject(failure)),
      });
      this.#running ??= this.#run();
    });
  }

  /** Waits for what was begun. Purchases of this owner that are still open are lost from then on. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running;
    await this.#owner?.close();
    await this.#lock.close();
    await this.#file.forget();
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      await this.#runOnce().catch((error) => this.#endAll(this.#waiting.splice(0), error));
      await pause();
    }
    this.#running = undefined;
  }

  async #runOnce(): Promise<void> {
    await this.#lock.acquire();
    try {
      const book = await this.#file.read();
      const together = this.#waiting.splice(0);
      await this.#decideAll(together, book).catch((error) => this.#endAll(together, error));
    } finally {
      this.#lock.release();
    }
  }

  async #decideAll(together: readonly Waiting[], book: Book): Promise<void> {
    const decided: Waiting[] = [];
    const entries: Entry[] = [];
    for (const each of together) {
      try {
        for (const entry of await each.decide(book)) {
          book.apply(entry);
          entries.push(entry);
        }
        decided.push(each);
      } catch (error) {
        each.end(error);
      }
    }
    if (entries.length > 0) await this.#file.append(entries);
    this.#endAll(decided);
    await this.#file.compact();
  }

  #endAll(waiting: readonly Waiting[], failure?: unknown): void {
    for (const each of waiting) each.end(failure);
  }
}
