import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { tryLock } from 'fs-native-extensions';
import { openOwnFile } from '../lib/private-files.ts';

/**
 * Shows others that a process lives: a file whose lock the system takes back with the process. A process id can't:
 * another one may have it by now. To be used under the budget's lock only, or a file could be found before it is locked.
 */
export class Owner {
  readonly id: string;
  readonly #file: FileHandle;

  private constructor(id: string, file: FileHandle) {
    this.id = id;
    this.#file = file;
  }

  static async claim(folder: string): Promise<Owner> {
    const id = randomUUID();
    const file = await openOwnFile(join(folder, id));
    if (!tryLock(file.fd)) throw new Error(`${join(folder, id)} is locked already.`);
    return new Owner(id, file);
  }

  /** From now on it has ended. */
  close(): Promise<void> {
    return this.#file.close();
  }
}

/** Whether the owner's process has ended, or closed its budget. */
export async function hasEnded(folder: string, id: string): Promise<boolean> {
  const { O_RDWR, O_NOFOLLOW, O_NONBLOCK } = constants;
  const file = await open(join(folder, id), O_RDWR | O_NOFOLLOW | O_NONBLOCK).catch((error) => {
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

/** Removes the files of owners that have ended. Their purchases remain lost without them. */
export async function removeEnded(folder: string): Promise<void> {
  for (const id of await readdir(folder)) {
    if (await hasEnded(folder, id)) await rm(join(folder, id), { force: true });
  }
}
