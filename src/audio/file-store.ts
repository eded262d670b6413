import { createHash, randomUUID } from 'node:crypto';
import fs, { constants } from 'node:fs';
import { chmod, type FileHandle, lstat, mkdir, open, readdir, realpath, rm, stat, statfs } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import { syncFolder } from '../lib/private-files.ts';
import { testPoint } from '../lib/test-point.ts';
import {
  type AudioRoom,
  type AudioStore,
  type ByteRange,
  checkKey,
  checkRange,
  type StoredAudio,
  StoreError,
} from './audio-store.ts';

// Of a put's steps only this one waits for the disk. The others, which work in the kernel's memory, are taken
// synchronously: handing one over to a thread costs several times what it does itself.
const syncFd = promisify(fs.fsync);

const PARTIAL_SUFFIX = '.partial';
const PARTIAL_MAX_AGE_MS = 3_600_000;
/** A symlink in place of an object is refused, and a pipe in place of one doesn't block. */
const OPEN_OBJECT = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/**
 * Objects as files in a directory that several processes may share: `ROOT/ab/cdef…`, the SHA-256 of the key in hex.
 * Hashing spreads the files evenly over 256 directories, and keeps keys apart where letter case doesn't count in names.
 *
 * A put writes `ROOT/<uuid>.partial`, syncs it, renames it to its place and syncs the directory, so that an object is
 * there whole or not at all. Partial files that a killed process left behind are removed when they are an hour old.
 */
export class FileAudioStore implements AudioStore {
  readonly #path: string;
  #root: Promise<string> | undefined;
  /** Those that objects were put into: made durable, and open, so that they can be synced. */
  readonly #directories = new Map<string, Promise<OpenDirectory>>();
  #nextSweepAt = 0;

  /** @param path absolute; made when it doesn't exist */
  constructor(path: string) {
    this.#path = path;
  }

  async put(key: string, audio: Buffer): Promise<void> {
    const { directory: name, file } = locate(key);
    await storing(async () => {
      const root = await this.#openRoot();
      const { path, handle } = await this.#openDirectory(root, name);
      await this.#removeLeftovers(root);
      const partial = join(root, randomUUID() + PARTIAL_SUFFIX);
      try {
        await writeDurably(partial, audio);
        testPoint('audio written');
        fs.renameSync(partial, join(path, file));
        testPoint('audio renamed');
      } catch (error) {
        await rm(partial, { force: true }).catch(() => undefined);
        throw error;
      }
      await syncFd(handle.fd);
    });
  }

  async open(key: string, range?: ByteRange): Promise<StoredAudio | undefined> {
    const { directory, file } = locate(key);
    const opened = await storing(async () => openFile(await this.#openRoot(), directory, file));
    if (!opened) return undefined;
    const { handle, size } = opened;
    try {
      if (range) checkRange(range, size);
      return { size, stream: handle.createReadStream(range ?? {}) };
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  async delete(key: string): Promise<void> {
    const { directory: name, file } = locate(key);
    await storing(async () => {
      const directory = join(await this.#openRoot(), name);
      if (!(await isOwnDirectory(directory))) return;
      await rm(join(directory, file), { force: true });
      await syncFolder(directory);
    });
  }

  async room(): Promise<AudioRoom> {
    const { bsize, bavail, blocks } = await storing(async () => statfs(await this.#openRoot()));
    return { freeBytes: bavail * bsize, sizeBytes: blocks * bsize };
  }

  async close(): Promise<void> {
    const opened = await Promise.allSettled(this.#directories.values());
    this.#directories.clear();
    for (const directory of opened) if (directory.status === 'fulfilled') await directory.value.handle.close();
  }

  #openRoot(): Promise<string> {
    this.#root ??= makeRoot(this.#path).catch((error) => {
      this.#root = undefined;
      throw error;
    });
    return this.#root;
  }

  /** The one that was opened before, unless somebody has removed or replaced it. */
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
    // One that another process has just removed, or that belongs to another user, is no reason to fail a put.
    await Promise.allSettled(
      names.map(async (name) => {
        const path = join(root, name);
        if ((await lstat(path)).mtimeMs < now - PARTIAL_MAX_AGE_MS) await rm(path);
      }),
    );
  }
}

function locate(key: string): { directory: string; file: string } {
  checkKey(key);
  const hash = createHash('sha256').update(key).digest('hex');
  return { directory: hash.slice(0, 2), file: hash.slice(2) };
}

/** The directory without symlinks in its path; what had to be made is durable. */
async function makeRoot(path: string): Promise<string> {
  const made = await mkdir(path, { recursive: true, mode: 0o700 });
  const { uid } = await stat(path);
  // Root may give the folder; anybody else who owns it could replace what is in it.
  if (uid !== 0 && uid !== process.geteuid?.()) throw new Error(`The folder belongs to user id ${uid}.`);
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
  readonly path: string;
  readonly handle: FileHandle;
  readonly inode: number;
}

/** Makes a directory of the root where there is none, durably, and opens it. */
async function makeDirectory(root: string, path: string): Promise<OpenDirectory> {
  const made = await mkdir(path, { recursive: true, mode: 0o700 });
  if (made) await chmod(path, 0o700);
  await syncFolder(root);
  const handle = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  return { path, handle, inode: (await handle.stat()).ino };
}

/** False when it is absent; throws when something else, such as a symlink out of the store, is in its place. */
async function isOwnDirectory(path: string): Promise<boolean> {
  const stats = await unlessAbsent(() => lstat(path));
  if (stats && !stats.isDirectory()) throw new Error('Something that is no directory is in its place.');
  return stats !== undefined;
}

async function openFile(
  root: string,
  directory: string,
  file: string,
): Promise<{ handle: FileHandle; size: number } | undefined> {
  if (!(await isOwnDirectory(join(root, directory)))) return undefined;
  const handle = await unlessAbsent(() => open(join(root, directory, file), OPEN_OBJECT));
  if (!handle) return undefined;
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw new Error('Something that is no file is in its place.');
    return { handle, size: stats.size };
  } catch (error) {
    await handle.close();
    throw error;
  }
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

async function unlessAbsent<T>(action: () => Promise<T>): Promise<T | undefined> {
  try {
    return await action();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

const FULL = ['ENOSPC', 'EDQUOT'];

async function storing<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    throw new StoreError(FULL.includes(code) ? 'full' : 'unavailable', error);
  }
}
