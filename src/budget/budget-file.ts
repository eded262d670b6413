import { type FileHandle, lstat, readdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { openOwnFile, replaceOwnFile, syncFolder } from '../lib/private-files.ts';
import { Book } from './book.ts';
import { type Entry, readLine, writeLine } from './entry.ts';

const HEADER = '{"speechgate":"budget","version":1}\n';
const NEWLINE = 0x0a;
/** As `replaceOwnFile` names what is not in its place yet. */
const UNFINISHED = /\.[0-9a-f-]{36}\.new$/;
/** A file below this size is left as it is. */
const COMPACT_FROM_BYTES = 65_536;
/** How much of a larger one has to be settled purchases before it is written anew. */
const COMPACT_FACTOR = 4;

/** The file is no budget, or was changed by something else. What was spent can't be known from it. */
export class DamagedBudgetError extends Error {
  constructor(path: string, where: string) {
    super(
      `${path} can't be read (${where}). Restore it, or move it away: a new budget then begins with nothing spent.`,
    );
    this.name = 'DamagedBudgetError';
  }
}

/**
 * The bytes of a budget: a line for the form, then lines of entries. To be used under its lock only. What was added is
 * on the disk before `append` returns. A last line that was not written whole (its process was killed, the disk was
 * full, the power failed) was promised to nobody and is cut off; any other that can't be read is an error.
 */
export class BudgetFile {
  readonly #path: string;
  #file: FileHandle | undefined;
  #identity = '';
  #book = new Book();
  /** Bytes that `#book` has. */
  #length = 0;
  #compactAt = COMPACT_FROM_BYTES;

  constructor(path: string) {
    this.#path = path;
  }

  /** What the file says now, with what other processes have added. @throws DamagedBudgetError, ForeignFileError */
  async read(): Promise<Book> {
    const file = await this.#current();
    const { size } = await file.stat();
    if (size === this.#length) return this.#book;
    try {
      const fresh = await readFrom(file, this.#length, size);
      this.#take(fresh);
      if (this.#length < size) await file.truncate(this.#length);
      return this.#book;
    } catch (error) {
      await this.forget();
      throw error;
    }
  }

  /** Adds entries that the book has applied already; when this throws, none of them counts. */
  async append(entries: readonly Entry[]): Promise<void> {
    const file = await this.#current();
    const before = this.#length;
    const bytes = Buffer.from(`${before === 0 ? HEADER : ''}${writeLine(entries)}`);
    try {
      await writeAt(file, bytes, before);
      await file.datasync();
    } catch (error) {
      await file.truncate(before).catch(() => {});
      await this.forget();
      throw error;
    }
    this.#length = before + bytes.length;
  }

  /**
   * Leaves out what is settled: at once where it has texts and ids, else once it is most of the file. One that can't be
   * written anew is kept as it is: the disk is full, or, on Windows, another process has the file open.
   */
  async compact(): Promise<void> {
    const { hasFinished } = this.#book;
    if (!hasFinished && this.#length < this.#compactAt) return;
    const content = `${HEADER}${writeLine(this.#book.entries())}`;
    const bytes = Buffer.byteLength(content);
    this.#compactAt = Math.max(COMPACT_FROM_BYTES, bytes * COMPACT_FACTOR);
    if (!hasFinished && this.#length < this.#compactAt) return;
    await this.forget();
    await replaceOwnFile(this.#path, content).catch(() => {});
  }

  /** Removes what was to become the file when its process was killed. */
  async removeUnfinished(): Promise<void> {
    const folder = dirname(this.#path);
    for (const name of await readdir(folder)) {
      if (UNFINISHED.test(name) && name.startsWith(`${basename(this.#path)}.`)) await rm(join(folder, name));
    }
  }

  /** Reads all of it again next time. */
  async forget(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    this.#book = new Book();
    this.#length = 0;
    await file?.close();
  }

  /** The file that has the name now: another process may have written it anew. */
  async #current(): Promise<FileHandle> {
    if (this.#file && (await this.#isCurrent())) return this.#file;
    await this.forget();
    this.#file = await openOwnFile(this.#path);
    // Nothing counts on the file before its name is on the disk, whoever has made it.
    await syncFolder(dirname(this.#path));
    const { dev, ino } = await this.#file.stat({ bigint: true });
    this.#identity = `${dev} ${ino}`;
    return this.#file;
  }

  async #isCurrent(): Promise<boolean> {
    const there = await lstat(this.#path, { bigint: true }).catch((error) => {
      if (error.code !== 'ENOENT') throw error;
      return undefined;
    });
    return there !== undefined && `${there.dev} ${there.ino}` === this.#identity && there.size >= this.#length;
  }

  #take(fresh: Buffer): void {
    let start = 0;
    if (this.#length === 0) {
      const head = fresh.toString('utf8', 0, HEADER.length);
      if (HEADER.startsWith(head) && head.length < HEADER.length) return;
      if (head !== HEADER) throw new DamagedBudgetError(this.#path, 'it does not begin as a budget does');
      start = HEADER.length;
    }
    for (let end = fresh.indexOf(NEWLINE, start); end !== -1; end = fresh.indexOf(NEWLINE, start)) {
      const entries = readLine(fresh.toString('utf8', start, end));
      const isLast = end === fresh.length - 1;
      if (!entries && isLast) break;
      if (!entries) throw new DamagedBudgetError(this.#path, `at byte ${this.#length + start}`);
      this.#apply(entries, start);
      start = end + 1;
    }
    this.#length += start;
  }

  #apply(entries: readonly Entry[], at: number): void {
    try {
      for (const entry of entries) this.#book.apply(entry);
    } catch (error) {
      throw new DamagedBudgetError(this.#path, `at byte ${this.#length + at}: ${(error as Error).message}`);
    }
  }
}

async function readFrom(file: FileHandle, start: number, end: number): Promise<Buffer> {
  const bytes = Buffer.alloc(end - start);
  let read = 0;
  while (read < bytes.length) {
    const { bytesRead } = await file.read(bytes, read, bytes.length - read, start + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return bytes.subarray(0, read);
}

async function writeAt(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  let written = 0;
  while (written < bytes.length) {
    const { bytesWritten } = await file.write(bytes, written, bytes.length - written, position + written);
    written += bytesWritten;
  }
}
