import { createHash, randomUUID } from 'node:crypto';
import fs, { constants } from 'node:fs';
import { chmod, type FileHandle, lstat, mkdir, open, readdir, realpath, rm, stat, statfs } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import { closeOnFailure } from '../../lib/close-on-failure.ts';
import { makeFolders, syncFolder } from '../../lib/private-files.ts';
import { testPoint } from '../../lib/test-point.ts';
import {
  type AudioRoom,
  type AudioStore,
  type ByteRange,
  checkKey,
  checkRange,
  type StoredAudio,
} from './audio-store.ts';
import { SegmentedAudio } from './segmented-audio.ts';
import { isOwnDirectory, openFile, storing } from './store-files.ts';

// Of a put's steps only this one waits for the disk. The others work in the kernel's memory and are synchronous:
// passing one to a thread would cost several times the step itself.
const syncFd = promisify(fs.fsync);

const PARTIAL_SUFFIX = '.partial';
const PARTIAL_MAX_AGE_MS = 3_600_000;
/**
 * Stores objects as files in a directory that several processes may share: `ROOT/ab/cdef…`, the hex SHA-256 of the key,
 * which keeps keys apart on case-insensitive file systems. A put writes `ROOT/<uuid>.partial`, syncs it, renames it and
 * syncs the directory. So an object is there whole or not at all.
 */
export class FileAudioStore implements AudioStore {
  readonly dated = {
    x402: new SegmentedAudio(() => this.#openRoot(), 'x402', true),
    prepaid: new SegmentedAudio(() => this.#openRoot(), 'prepaid', false),
  };
  readonly #path: string;
  #root: Promise<string> | undefined;
  readonly #directories = new Map<string, Promise<OpenDirectory>>();
  #nextSweepAt = 0;

  constructor(path: string) {
    this.#path = path;
  }

  async put(key: string, audio: Buffer): Promise<void> {
    const place = placeOf(key);
    await storing(async () => {
      const root = await this.#openRoot();
      const { handle } = await this.#openDirectory(root, dirname(place));
      await this.#removeLeftovers(root);
      const partial = join(root, randomUUID() + PARTIAL_SUFFIX);
      try {
        await writeDurably(partial, audio);
        testPoint('audio written');
        fs.renameSync(partial, join(root, place));
        testPoint('audio renamed');
      } catch (error) {
        await rm(partial, { force: true }).catch(() => undefined);
        throw error;
      }
      await syncFd(handle.fd);
    });
  }

  async open(key: string, range?: ByteRange): Promise<StoredAudio | undefined> {
    const place = placeOf(key);
    const opened = await storing(async () => openFile(join(await this.#openRoot(), place)));
    if (!opened) return undefined;
    const { handle, size } = opened;
    return closeOnFailure(handle, async () => {
      if (range) checkRange(range, size);
      return { size, stream: handle.createReadStream(range ?? {}) };
    });
  }

  async delete(key: string): Promise<void> {
    const place = placeOf(key);
    await storing(async () => {
      const path = join(await this.#openRoot(), place);
      if (!(await isOwnDirectory(dirname(path)))) return;
      await rm(path, { force: true });
      await syncFolder(dirname(path));
    });
  }

  async tryWrite(): Promise<void> {
    await storing(async () => {
      const path = join(await this.#openRoot(), randomUUID() + PARTIAL_SUFFIX);
      fs.writeFileSync(path, '', { flag: 'wx', mode: 0o600 });
      fs.rmSync(path);
    });
  }

  async room(): Promise<AudioRoom> {
    const { bsize, bavail, blocks } = await storing(async () => statfs(await this.#openRoot()));
    return { freeBytes: bavail * bsize, sizeBytes: blocks * bsize };
  }

  async close(): Promise<void> {
    const opened = await Promise.allSettled(this.#directories.values());
    this.#directories.clear();
    await Promise.all([this.dated.x402.close(), this.dated.prepaid.close()]);
    for (const directory of opened) if (directory.status === 'fulfilled') await directory.value.handle.close();
  }

  #openRoot(): Promise<string> {
    this.#root ??= makeRoot(this.#path).catch((error) => {
      this.#root = undefined;
      throw error;
    });
    return this.#root;
  }

  /** Reuses an open directory, unless it was removed or replaced. */
  async #openDirectory(root: string, name: string): Promise<OpenDirectory> {
    const path = join(root, name);
    const known = this.#directories.get(name);
    if (known) {
      const directory = await known;
      if (fs.lstatSync(path, { throwIfNoEntry: false })?.ino === directory.inode) return directory;
      if (this.#directories.get(name) === known) {
        this.#directories.delete(name);
        await directory.handle.close();
      }
      return this.#openDirectory(root, name);
    }
    const opening = makeDirectory(root, path);
    this.#directories.set(name, opening);
    opening.catch(() => this.#directories.delete(name));
    return opening;
  }

  async #removeLeftovers(root: string): Promise<void> {
    const now = Date.now();
    if (now < this.#nextSweepAt) return;
    this.#nextSweepAt = now + PARTIAL_MAX_AGE_MS;
    const names = (await readdir(root)).filter((name) => name.endsWith(PARTIAL_SUFFIX));
    // A file that another process just removed, or another user owns, must not fail the put.
    await Promise.allSettled(
      names.map(async (name) => {
        const path = join(root, name);
        if ((await lstat(path)).mtimeMs < now - PARTIAL_MAX_AGE_MS) await rm(path);
      }),
    );
  }
}

function placeOf(key: string): string {
  checkKey(key);
  const hash = createHash('sha256').update(key).digest('hex');
  return join(hash.slice(0, 2), hash.slice(2));
}

async function makeRoot(path: string): Promise<string> {
  const made = await makeFolders(path);
  const { uid } = await stat(path);
  // Root may own the folder; any other owner could replace its content.
  if (uid !== 0 && uid !== process.geteuid?.())
    throw new Error(
      `The audio folder belongs to another user (user id ${uid}). Give it to the user of this process with chown.`,
    );
  if (made) {
    await chmod(path, 0o700);
    let directory = dirname(made);
    await syncFolder(directory);
    for (const name of relative(directory, dirname(path)).split(sep).filter(Boolean)) {
      directory = join(directory, name);
      await syncFolder(directory);
    }
  }
  return realpath(path);
}

interface OpenDirectory {
  readonly handle: FileHandle;
  readonly inode: number;
}

async function makeDirectory(root: string, path: string): Promise<OpenDirectory> {
  const made = await mkdir(path, { recursive: true, mode: 0o700 });
  if (made) await chmod(path, 0o700);
  await syncFolder(root);
  const handle = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  const { ino } = await closeOnFailure(handle, () => handle.stat());
  return { handle, inode: ino };
}

async function writeDurably(path: string, content: Buffer): Promise<void> {
  const file = fs.openSync(path, 'wx', 0o600);
  try {
    fs.fchmodSync(file, 0o600);
    fs.writeFileSync(file, content);
    await syncFd(file);
  } finally {
    fs.closeSync(file);
  }
}
