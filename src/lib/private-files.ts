import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, type FileHandle, lstat, mkdir, open, readFile, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
const WRITABLE_BY_OTHERS = 0o022;
const { O_CREAT, O_EXCL, O_WRONLY, O_APPEND, O_RDONLY, O_RDWR, O_NOFOLLOW, O_NONBLOCK } = constants;

/** A file or folder belongs to somebody else, who could read, replace or redirect what is written there. */
export class ForeignFileError extends Error {}

/**
 * Makes a folder that is this user's alone, 0700 whatever the umask, and tells its path without links. One that exists
 * must belong to this user, and so must a link to it.
 * @throws ForeignFileError
 */
export async function ownFolder(path: string): Promise<string> {
  const made = await mkdir(path, { recursive: true, mode: DIRECTORY_MODE });
  if (made) await chmod(path, DIRECTORY_MODE);
  for (const status of [await lstat(path), await stat(path)]) assertOwn(path, status.uid);
  return realpath(path);
}

/**
 * Likewise, of a folder within one of ours: there nothing else than a folder may be in its place, such as a link out of it.
 * @throws ForeignFileError
 */
export async function ownSubfolder(path: string): Promise<string> {
  const status = await lstat(path).catch((error) => {
    if (error.code !== 'ENOENT') throw error;
    return undefined;
  });
  if (status && !status.isDirectory()) {
    throw new ForeignFileError(`${path} is no folder. Remove what is in its place, or choose another DATA_DIR.`);
  }
  return ownFolder(path);
}

/** Makes a file that must not exist yet: 0600 whatever the umask, and on the disk when this returns. */
export async function createOwnFile(path: string, content: string | Uint8Array): Promise<void> {
  // With O_EXCL a link in its place is an existing file.
  const file = await open(path, O_WRONLY | O_CREAT | O_EXCL, FILE_MODE);
  try {
    await file.chmod(FILE_MODE);
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Puts a whole new file of mode 0600 in the place of the former one; a link there is replaced, never followed. */
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

/**
 * The text of a file of this user; undefined when there is none.
 * @throws ForeignFileError for one of somebody else, and for a link or anything else that is no file
 */
export async function readOwnFile(path: string): Promise<string | undefined> {
  const file = await openOwn(path, O_RDONLY | O_NONBLOCK).catch((error) => {
    if (error.code !== 'ENOENT') throw error;
    return undefined;
  });
  if (!file) return undefined;
  try {
    return await readFile(file, 'utf8');
  } finally {
    await file.close();
  }
}

/**
 * Likewise, of a file that is believed: no other user may write to it, or put another one in its place.
 * @throws ForeignFileError
 */
export async function readUnsharedFile(path: string): Promise<string | undefined> {
  for (const place of [dirname(path), path]) {
    const status = await stat(place).catch((error) => {
      if (error.code !== 'ENOENT') throw error;
      return undefined;
    });
    if (!status) return undefined;
    assertOwn(place, status.uid);
    assertUnshared(place, status.mode);
  }
  return readOwnFile(path);
}

/**
 * Opens a log to write to its end; one that is made has mode 0600.
 * @throws ForeignFileError
 */
export const openOwnLog = (path: string): Promise<FileHandle> =>
  openOwn(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK);

/**
 * Opens a file to read and write, and makes one that is missing. Its mode is 0600 from then on, whatever it was.
 * @throws ForeignFileError
 */
export async function openOwnFile(path: string): Promise<FileHandle> {
  const file = await openOwn(path, O_RDWR | O_CREAT | O_NONBLOCK);
  await file.chmod(FILE_MODE);
  return file;
}

async function openOwn(path: string, flags: number): Promise<FileHandle> {
  const file = await open(path, flags | O_NOFOLLOW, FILE_MODE).catch((error) => {
    if (error.code !== 'ELOOP') throw error;
    throw new ForeignFileError(`${path} is a link. Remove it: links are not followed here.`);
  });
  try {
    const status = await file.stat();
    assertOwn(path, status.uid);
    if (!status.isFile()) throw new ForeignFileError(`${path} is no file. Remove what is in its place.`);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Where users have no ids, nothing can be told, and nothing is refused. */
function assertOwn(path: string, uid: number): void {
  const own = process.geteuid?.();
  if (own === undefined || own === uid) return;
  throw new ForeignFileError(
    `${path} belongs to user id ${uid}, and this process runs as user id ${own}: it could be read or replaced there. ` +
      'Start as its owner, or choose a folder of your own (DATA_DIR).',
  );
}

/** Windows keeps rights elsewhere, and shows every file as open to all. */
function assertUnshared(path: string, mode: number): void {
  if (process.platform === 'win32' || (mode & WRITABLE_BY_OTHERS) === 0) return;
  throw new ForeignFileError(
    `Other users of this machine can write to ${path}, so what it says is not used. Look at it, then run: chmod go-w '${path}'`,
  );
}

/** Returns when what was renamed in the folder is on the disk. Windows has no call for it. */
export async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  const folder = await open(path, O_RDONLY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
