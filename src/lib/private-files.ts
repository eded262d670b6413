import { randomUUID } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import {
  chmod,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { dirname, isAbsolute, join } from 'node:path';
import { closeOnFailure } from './close-on-failure.ts';

const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
const WRITABLE_BY_OTHERS = 0o022;
const { O_CREAT, O_EXCL, O_WRONLY, O_APPEND, O_RDONLY, O_RDWR, O_NOFOLLOW, O_NONBLOCK } = constants;

export class ForeignFileError extends Error {}

/** Makes a folder and its parents. Unlike mkdir's own option, this ends below /proc. Returns the first one made. */
export async function makeFolders(path: string): Promise<string | undefined> {
  const first = existsSync(dirname(path)) ? undefined : await makeFolders(dirname(path));
  try {
    await mkdir(path, DIRECTORY_MODE);
    return first ?? path;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !(await stat(path)).isDirectory()) throw error;
    return first;
  }
}

/** Makes a folder of this user, mode 0700. Returns its path without links. @throws ForeignFileError */
export async function ownFolder(path: string): Promise<string> {
  const made = await makeFolders(path);
  if (made) await chmod(path, DIRECTORY_MODE);
  for (const status of [await lstat(path), await stat(path)]) assertOwn(path, status.uid);
  return realpath(path);
}

/** Makes a folder within an own one, and refuses a link in its place. @throws ForeignFileError */
export async function ownSubfolder(path: string): Promise<string> {
  const status = await unlessAbsent(lstat(path));
  if (status && !status.isDirectory()) {
    throw new ForeignFileError(`${path} is not a folder. Move it away, or choose another DATA_DIR.`);
  }
  return ownFolder(path);
}

/** Creates a file that must not exist, mode 0600 whatever the umask. It is on disk when this returns. */
export async function createOwnFile(path: string, content: string | Uint8Array): Promise<void> {
  // O_EXCL also fails if a link is in its place.
  const file = await open(path, O_WRONLY | O_CREAT | O_EXCL, FILE_MODE);
  try {
    await file.chmod(FILE_MODE);
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Replaces a file by a whole new one of mode 0600. A link is replaced, never followed. */
export async function replaceOwnFile(path: string, content: string | Uint8Array): Promise<void> {
  const fresh = `${path}.${randomUUID()}.new`;
  try {
    await createOwnFile(fresh, content);
    await rename(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Returns undefined if there is none. @throws ForeignFileError for another user's file, a link or no regular file */
export async function readOwnFile(path: string): Promise<string | undefined> {
  const file = await unlessAbsent(openOwn(path, O_RDONLY | O_NONBLOCK));
  if (!file) return undefined;
  try {
    return await readFile(file, 'utf8');
  } finally {
    await file.close();
  }
}

/** Reads a trusted file: no other user may be able to write or replace it. @throws ForeignFileError */
export async function readUnsharedFile(path: string): Promise<string | undefined> {
  for (const place of [dirname(path), path]) {
    const status = await unlessAbsent(stat(place));
    if (!status) return undefined;
    assertOwn(place, status.uid);
    assertUnshared(place, status.mode);
  }
  return readOwnFile(path);
}

/** Opens a log to append to; a new one has mode 0600. @throws ForeignFileError */
export const openOwnLog = (path: string): Promise<FileHandle> =>
  openOwn(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK);

/** Opens a file to read and write, created if missing, and sets its mode to 0600. @throws ForeignFileError */
export async function openOwnFile(path: string): Promise<FileHandle> {
  const file = await openOwn(path, O_RDWR | O_CREAT | O_NONBLOCK);
  await closeOnFailure(file, () => file.chmod(FILE_MODE));
  return file;
}

async function openOwn(path: string, flags: number): Promise<FileHandle> {
  const file = await open(path, flags | O_NOFOLLOW, FILE_MODE).catch((error) => {
    if (error.code !== 'ELOOP') throw error;
    throw new ForeignFileError(`${path} is a link, which is not followed here. Replace it with a file of your own.`);
  });
  await closeOnFailure(file, async () => {
    const status = await file.stat();
    assertOwn(path, status.uid);
    if (!status.isFile())
      throw new ForeignFileError(
        `${path} is a device, pipe or folder, not a file. Name another path, or move it away if it should not be there.`,
      );
  });
  return file;
}

/** Without user ids, as on Windows, nothing is refused. */
function assertOwn(path: string, uid: number): void {
  const own = process.geteuid?.();
  if (own === undefined || own === uid) return;
  throw new ForeignFileError(
    `${path} belongs to user id ${uid}, but this process runs as user id ${own}, so it is not used. ` +
      'Run as that user, or use a file or folder of your own; DATA_DIR sets the folder of the service.',
  );
}

/** Windows keeps permissions elsewhere, and shows every file as writable by all. */
function assertUnshared(path: string, mode: number): void {
  if (process.platform === 'win32' || (mode & WRITABLE_BY_OTHERS) === 0) return;
  throw new ForeignFileError(
    `Other users of this machine can write to ${path}, so it is not used. Check its content, then run: chmod go-w '${path}'`,
  );
}

/** Makes renames in the folder durable. Windows has no call for it. */
export async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  const folder = await open(path, O_RDONLY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

export async function unlessAbsent<T>(result: Promise<T>): Promise<T | undefined> {
  try {
    return await result;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

const ROOT_UID = 0;
const MAX_LINKS = 40;

/** Follows only links of this user and of root; others could lead anywhere. @throws ForeignFileError */
export async function followOwnLinks(path: string): Promise<string> {
  const own = process.geteuid?.();
  if (own === undefined) return realpath(path).catch(() => path);
  let place = '/';
  const names = (isAbsolute(path) ? path : `${process.cwd()}/${path}`).split('/');
  for (let links = 0; names.length > 0; ) {
    const name = names.shift() as string;
    const next = name === '..' ? dirname(place) : join(place, name);
    if (isDescriptor(next)) return next;
    const status = await lstat(next).catch(() => undefined);
    if (!status?.isSymbolicLink()) {
      place = next;
      continue;
    }
    if (![own, ROOT_UID].includes(status.uid)) {
      throw new ForeignFileError(`${next} is a link of another user (user id ${status.uid})`);
    }
    if (++links > MAX_LINKS) throw new ForeignFileError(`${next} leads through more than ${MAX_LINKS} links`);
    const target = await readlink(next);
    if (isAbsolute(target)) place = '/';
    names.unshift(...target.split('/'));
  }
  return place;
}

/** Whether the path is an open file of this process, which is trusted regardless of its owner. */
export const isDescriptor = (path: string): boolean =>
  new RegExp(`^/(dev|proc/self|proc/${process.pid})/fd/\\d+$`).test(path);
