import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { closeOnFailure } from '../../lib/close-on-failure.ts';
import { syncFolder, unlessAbsent } from '../../lib/private-files.ts';
import { testPoint } from '../../lib/test-point.ts';
import {
  type ByteRange,
  checkRange,
  type DatedAudio,
  type DatedKind,
  endedMinutes,
  minuteOf,
  type StoredAudio,
} from './audio-store.ts';
import { assertDirectory, isOwnDirectory, openFile, storing } from './store-files.ts';

const syncData = promisify(fs.fdatasync);

const AUDIO = '.audio';
const INDEX = '.index';
/** A response is stored at most a longest synthesis, ten minutes, after its id was made. */
const MAX_OPEN = 16;

/**
 * Stores objects of a minute in one file of each process, because a file for each object costs many times its write:
 *
 *     ROOT/KIND/MINUTE/UUID.audio   the objects, one after the other
 *     ROOT/KIND/MINUTE/UUID.index   a line `KEY OFFSET SIZE` for each object, written after it
 */
export class SegmentedAudio implements DatedAudio {
  readonly #folder: () => Promise<string>;
  readonly #isDurable: boolean;
  readonly #open = new Map<number, Segment>();

  /** @param root makes the store's folder and returns its path @param isDurable whether a put waits for the disk */
  constructor(root: () => Promise<string>, kind: DatedKind, isDurable: boolean) {
    this.#folder = async () => join(await root(), kind);
    this.#isDurable = isDurable;
  }

  async put(key: string, audio: Buffer): Promise<void> {
    const minute = minuteOf(key);
    await storing(async () => {
      const folder = join(await this.#folder(), String(minute));
      const segment = this.#segmentOf(minute, folder);
      try {
        segment.append(key, audio);
        testPoint('audio appended');
        if (this.#isDurable) await segment.sync();
      } catch (error) {
        // Nobody knows what of it is on the disk.
        this.#end(minute, segment);
        throw error;
      }
    });
  }

  async open(key: string, range?: ByteRange): Promise<StoredAudio | undefined> {
    const minute = minuteOf(key);
    return storing(async () => {
      const folder = join(await this.#folder(), String(minute));
      if (!(await isOwnDirectory(folder))) return undefined;
      for (const path of await indexesIn(folder)) {
        const place = placeIn(await readWhole(path), key);
        const opened = place && (await openFile(path.slice(0, -INDEX.length) + AUDIO));
        if (!opened) continue;
        const { handle } = opened;
        return closeOnFailure(handle, async () => {
          const { offset, size } = place;
          if (range) checkRange(range, size);
          const { start, end } = range ?? { start: 0, end: size - 1 };
          const part = { start: offset + start, end: offset + Math.min(end, size - 1) };
          return { size, stream: handle.createReadStream(part) };
        });
      }
      return undefined;
    });
  }

  async minutes(before: Date): Promise<number[]> {
    return storing(async () => endedMinutes((await unlessAbsent(readdir(await this.#folder()))) ?? [], before));
  }

  async deleteMinute(minute: number): Promise<number> {
    return storing(async () => {
      const folder = join(await this.#folder(), String(minute));
      if (!(await isOwnDirectory(folder))) return 0;
      let count = 0;
      for (const path of await indexesIn(folder)) count += (await readWhole(path)).split('\n').length - 1;
      await rm(folder, { recursive: true, force: true });
      return count;
    });
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open].map(([minute, segment]) => this.#end(minute, segment)));
  }

  #segmentOf(minute: number, folder: string): Segment {
    const known = this.#open.get(minute);
    if (known?.exists) return known;
    if (known) this.#end(minute, known);
    const segment = new Segment(folder);
    this.#open.set(minute, segment);
    const [[oldest, first]] = this.#open as unknown as [[number, Segment]];
    if (this.#open.size > MAX_OPEN) this.#end(oldest, first);
    return segment;
  }

  #end(minute: number, segment: Segment): Promise<void> {
    if (this.#open.get(minute) === segment) this.#open.delete(minute);
    return segment.close();
  }
}

class Segment {
  readonly #folder: string;
  readonly #audio: number;
  readonly #index: number;
  #size = 0;
  #indexSize = 0;
  #isNew = true;
  #syncing: Promise<unknown> = Promise.resolve();
  #next: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(folder: string) {
    this.#folder = folder;
    fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
    assertDirectory(fs.lstatSync(folder));
    const path = join(folder, randomUUID());
    this.#audio = fs.openSync(path + AUDIO, 'ax', 0o600);
    this.#index = fs.openSync(path + INDEX, 'ax', 0o600);
  }

  /** False once its folder was deleted. */
  get exists(): boolean {
    return fs.fstatSync(this.#index).nlink > 0;
  }

  // These writes end in the kernel's memory: passing them to a thread would cost several times as much.
  append(key: string, audio: Buffer): void {
    const line = `${key} ${this.#size} ${audio.length}\n`;
    try {
      fs.writeFileSync(this.#audio, audio);
      fs.writeFileSync(this.#index, line);
    } catch (error) {
      // On a full disk a part would keep its space.
      fs.ftruncateSync(this.#audio, this.#size);
      fs.ftruncateSync(this.#index, this.#indexSize);
      throw error;
    }
    this.#size += audio.length;
    this.#indexSize += line.length;
  }

  /**
   * Resolves when everything that was appended before is on the disk. Concurrent calls share a sync. After a failed one
   * all fail: the kernel may have dropped what it did not write, and a later sync would not tell.
   */
  sync(): Promise<void> {
    if (this.#next) return this.#next;
    const begin = async () => {
      this.#next = undefined;
      await Promise.all([syncData(this.#audio), syncData(this.#index), this.#isNew && this.#syncFolders()]);
      this.#isNew = false;
    };
    this.#next = this.#syncing.then(begin);
    this.#syncing = this.#next;
    return this.#next;
  }

  close(): Promise<void> {
    const end = () => {
      fs.closeSync(this.#audio);
      fs.closeSync(this.#index);
    };
    this.#closed ??= this.#syncing.then(end, end);
    return this.#closed;
  }

  async #syncFolders(): Promise<void> {
    const kind = dirname(this.#folder);
    await Promise.all([this.#folder, kind, dirname(kind)].map(syncFolder));
  }
}

async function indexesIn(folder: string): Promise<string[]> {
  const names = (await unlessAbsent(readdir(folder))) ?? [];
  return names.filter((name) => name.endsWith(INDEX)).map((name) => join(folder, name));
}

async function readWhole(path: string): Promise<string> {
  const opened = await openFile(path);
  if (!opened) return '';
  try {
    return await opened.handle.readFile('utf8');
  } finally {
    await opened.handle.close();
  }
}

/** The last object of that key. A line that a dying process began has no end, and doesn't count. */
function placeIn(index: string, key: string): { readonly offset: number; readonly size: number } | undefined {
  const begin = `\n${index}`.lastIndexOf(`\n${key} `);
  const [, offset, size] = (begin >= 0 && /^\S+ (\d+) (\d+)\n/.exec(index.slice(begin))) || [];
  return size === undefined ? undefined : { offset: Number(offset), size: Number(size) };
}
