import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { open, readdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { tryLock } from 'fs-native-extensions';
import { closeOnFailure } from '../../lib/close-on-failure.ts';
import { FileLock, pause } from '../../lib/file-lock.ts';
import { ownFolder, ownSubfolder, readOwnFile, replaceOwnFile } from '../../lib/private-files.ts';
import { Book } from '../client/book.ts';

const VERSION = 2;
const TEMPORARY = /\.[0-9a-f-]{36}\.new$/;
const CLOSED = 'The budget is closed. Open it again with openFileBudget.';

export class DamagedBudgetError extends Error {
  constructor(path: string, reason: string) {
    super(
      `The budget file ${path} is not valid (${reason}). Restore it from a backup. Or move it away: the caps then count from 0 again.`,
    );
    this.name = 'DamagedBudgetError';
  }
}

interface Change {
  /** Makes the change. Call the returned function once the change is on disk. */
  apply(book: Book): Promise<() => void>;
  fail(error: unknown): void;
}

/** Each change takes a lock and replaces the whole file, so a kill never leaves a partial file. */
export class BudgetStore {
  readonly #path: string;
  readonly #lock: FileLock;
  readonly #owners: string;
  #owner: { readonly id: string; readonly lock: FileLock } | undefined;
  #waiting: Change[] = [];
  #running: Promise<void> | undefined;
  #isClosed = false;

  private constructor(path: string, lock: FileLock, owners: string) {
    this.#path = path;
    this.#lock = lock;
    this.#owners = owners;
  }

  static async open(path: string): Promise<BudgetStore> {
    const file = join(await ownFolder(dirname(path)), basename(path));
    const owners = await ownSubfolder(`${file}.owners`);
    const store = new BudgetStore(file, await FileLock.open(`${file}.lock`), owners);
    const prepare = async () => {
      await store.#removeTemporaryFiles();
      for (const id of await readdir(owners)) {
        if (await store.hasExited(id)) await rm(join(owners, id), { force: true });
      }
      await store.#claim();
    };
    await closeOnFailure(store, () => store.change(prepare));
    return store;
  }

  get owner(): string {
    if (!this.#owner) throw new Error(CLOSED);
    return this.#owner.id;
  }

  /** The lock proves that this process is alive; a process id could be reused. Call only within a change. */
  async #claim(): Promise<void> {
    const id = randomUUID();
    const lock = await FileLock.open(join(this.#owners, id));
    this.#owner = { id, lock };
    if (!lock.tryAcquire()) {
      throw new Error(`${join(this.#owners, id)} is locked by another process. Open the budget again.`);
    }
  }

  /** True if the owner's process has exited or closed its budget. Call only within a change. */
  async hasExited(owner: string): Promise<boolean> {
    const { O_RDWR, O_NOFOLLOW, O_NONBLOCK } = constants;
    const file = await open(join(this.#owners, owner), O_RDWR | O_NOFOLLOW | O_NONBLOCK).catch((error) => {
      if (error.code !== 'ENOENT') throw error;
      return undefined;
    });
    if (!file) return true;
    try {
      return tryLock(file.fd);
    } finally {
      await file.close();
    }
  }

  /**
   * Runs the work with exclusive access. The change is on disk when this resolves, and undone when it rejects.
   * @param work must not throw after it changed something
   */
  change<T>(work: (book: Book) => T | Promise<T>): Promise<T> {
    if (this.#isClosed) return Promise.reject(new Error(CLOSED));
    return new Promise<T>((resolve, reject) => {
      const apply = async (book: Book) => {
        const result = await work(book);
        return () => resolve(result);
      };
      this.#waiting.push({ apply, fail: reject });
      this.#running ??= this.#run();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running;
    await this.#owner?.lock.close();
    await this.#lock.close();
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      await this.#lock.acquire().then(
        () => this.#changeTogether(this.#waiting.splice(0)).finally(() => this.#lock.release()),
        (error) => failAll(this.#waiting.splice(0), error),
      );
      // Gives other processes a chance to take the lock.
      await pause();
    }
    this.#running = undefined;
  }

  async #changeTogether(changes: readonly Change[]): Promise<void> {
    try {
      const book = await this.#read();
      const before = textOf(book);
      const applied: (() => void)[] = [];
      for (const { apply, fail } of changes) await apply(book).then((done) => applied.push(done), fail);
      const after = textOf(book);
      if (after !== before) await replaceOwnFile(this.#path, after);
      for (const done of applied) done();
    } catch (error) {
      failAll(changes, error);
    }
  }

  async #read(): Promise<Book> {
    const text = await readOwnFile(this.#path);
    try {
      return text === undefined ? new Book() : parseBook(text);
    } catch (error) {
      throw new DamagedBudgetError(
        this.#path,
        error instanceof TypeError ? 'a member is missing' : (error as Error).message,
      );
    }
  }

  async #removeTemporaryFiles(): Promise<void> {
    const folder = dirname(this.#path);
    for (const name of await readdir(folder)) {
      if (TEMPORARY.test(name) && name.startsWith(`${basename(this.#path)}.`)) await rm(join(folder, name));
    }
  }
}

function failAll(changes: readonly Change[], error: unknown): void {
  for (const { fail } of changes) fail(error);
}

function parseBook(text: string): Book {
  const { speechgate, version, days, accounts, open, rests } = JSON.parse(text);
  if (speechgate !== 'budget' || version !== VERSION) throw new Error(`it is not a budget of version ${VERSION}`);
  return new Book({
    days: days.map(withAmounts('spentMicroUsd', 'unconfirmedMicroUsd')),
    accounts: accounts.map((account: { lowestMicroUsd?: unknown }) =>
      withAmounts('expectedMicroUsd', ...(account.lowestMicroUsd === undefined ? [] : ['lowestMicroUsd']))(account),
    ),
    open: open.map(withAmounts('maxMicroUsd')),
    rests: rests.map(withAmounts('microUsd')),
  });
}

const withAmounts =
  (...names: readonly string[]) =>
  (entry: Readonly<Record<string, unknown>>) => ({
    ...entry,
    ...Object.fromEntries(names.map((name) => [name, readAmount(entry[name])])),
  });

function readAmount(text: unknown): bigint {
  if (typeof text === 'string' && /^-?\d+$/.test(text)) return BigInt(text);
  throw new Error(`the amount ${text} in it is not a whole number of micro-USD`);
}

function textOf(book: Book): string {
  const document = { speechgate: 'budget', version: VERSION, ...book.state };
  return `${JSON.stringify(document, (_name, value) => (typeof value === 'bigint' ? String(value) : value))}\n`;
}
