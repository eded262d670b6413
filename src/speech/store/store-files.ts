import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { closeOnFailure } from '../../lib/close-on-failure.ts';
import { unlessAbsent } from '../../lib/private-files.ts';
import { StoreError } from './audio-store.ts';

/** Refuses a symlink in place of an object, and does not block on a pipe. */
const OPEN_OBJECT = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Returns false if it is absent; throws if something else, such as a symlink out of the store, is in its place. */
export async function isOwnDirectory(path: string): Promise<boolean> {
  const stats = await unlessAbsent(lstat(path));
  if (stats) assertDirectory(stats);
  return stats !== undefined;
}

export function assertDirectory(stats: Stats): void {
  if (!stats.isDirectory())
    throw new Error(
      'In the audio folder (of AUDIO_STORE or DATA_DIR), something else than a folder has the name of a subfolder. Move it away.',
    );
}

/** Returns undefined if it is absent; throws if it, or its folder, is a symlink or something else. */
export async function openFile(path: string): Promise<{ handle: FileHandle; size: number } | undefined> {
  if (!(await isOwnDirectory(dirname(path)))) return undefined;
  const handle = await unlessAbsent(open(path, OPEN_OBJECT));
  if (!handle) return undefined;
  return closeOnFailure(handle, async () => {
    const stats = await handle.stat();
    if (!stats.isFile())
      throw new Error(
        'In the audio folder (of AUDIO_STORE or DATA_DIR), something else than a file has the name of an audio file. Move it away.',
      );
    return { handle, size: stats.size };
  });
}

const FULL = ['ENOSPC', 'EDQUOT'];

/** Passes on a RangeError, and turns any other failure into a StoreError. */
export async function storing<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (error instanceof RangeError && code === '') throw error;
    throw new StoreError(FULL.includes(code) ? 'full' : 'unavailable', error);
  }
}
