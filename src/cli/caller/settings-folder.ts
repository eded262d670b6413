import { stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { withFileLock } from '../../lib/file-lock.ts';
import { ForeignFileError, ownFolder, readOwnFile, replaceOwnFile } from '../../lib/private-files.ts';
import { UsageError } from '../usage-error.ts';

const OTHERS = 0o077;
const LOCK_FILE = 'settings.lock';

/** Where a caller's settings are: SPEECHGATE_CONFIG_DIR, or `speechgate` in XDG_CONFIG_HOME or in ~/.config. */
export function settingsFolder(env: NodeJS.ProcessEnv): string {
  const own = env.SPEECHGATE_CONFIG_DIR?.trim();
  if (own) return resolve(own);
  // The XDG base directory specification has relative paths ignored.
  const base = env.XDG_CONFIG_HOME?.trim();
  return join(base && isAbsolute(base) ? base : join(homedir(), '.config'), 'speechgate');
}

/**
 * What a file of the folder holds, which is JSON; undefined when there is none.
 * @throws UsageError when others may read it, when it belongs to another user, and when it is damaged
 */
export async function readSettingsFile(folder: string, name: string): Promise<unknown> {
  const path = join(folder, name);
  await refuseOpen(folder, '700');
  await refuseOpen(path, '600');
  const text = await own(() => readOwnFile(path));
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`${path} is no JSON. Mend it, or remove it and run speechgate connect again.`);
  }
}

/**
 * Changes files of the folder by what they hold, while no other process does. Not to be called within a change.
 * @throws FileBusyError, and UsageError as `readSettingsFile` does
 */
export async function changeSettings<T>(folder: string, change: () => Promise<T>): Promise<T> {
  await own(() => ownFolder(folder));
  await refuseOpen(folder, '700');
  return own(() => withFileLock(join(folder, LOCK_FILE), change));
}

/**
 * Puts the value into a file that only its owner reads, whole and on the disk.
 * @throws UsageError as `readSettingsFile` does
 */
export async function writeSettingsFile(folder: string, name: string, value: unknown): Promise<void> {
  await own(() => ownFolder(folder));
  await refuseOpen(folder, '700');
  await replaceOwnFile(join(folder, name), `${JSON.stringify(value, null, 2)}\n`);
}

/** Files with ids and keys that others may read are not used, since it is too late to keep quiet about that. */
async function refuseOpen(path: string, mode: string): Promise<void> {
  if (process.platform === 'win32') return;
  const status = await stat(path).catch((error) => {
    if (error.code !== 'ENOENT') throw error;
    return undefined;
  });
  if (!status || (status.mode & OTHERS) === 0) return;
  throw new UsageError(`${path} is open to other users of this machine. Run: chmod ${mode} '${path}'`);
}

async function own<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof ForeignFileError ? new UsageError(error.message) : error;
  }
}
