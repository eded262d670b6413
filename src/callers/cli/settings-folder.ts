import { stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { UsageError } from '../../lib/arguments.ts';
import { withFileLock } from '../../lib/file-lock.ts';
import { ForeignFileError, ownFolder, readOwnFile, replaceOwnFile } from '../../lib/private-files.ts';

/** Replaces a leading `~/`, which only shells do. */
export const homePath = (path: string): string => path.replace(/^~(?=\/|$)/, () => homedir());

/** SPEECHGATE_CONFIG_DIR, or `speechgate` in XDG_CONFIG_HOME or in ~/.config. */
export function settingsFolder(env: NodeJS.ProcessEnv): string {
  const own = env.SPEECHGATE_CONFIG_DIR?.trim();
  if (own) return resolve(homePath(own));
  // The XDG specification says to ignore relative paths.
  const base = env.XDG_CONFIG_HOME?.trim();
  return join(base && isAbsolute(base) ? base : join(homedir(), '.config'), 'speechgate');
}

/** @throws UsageError if the file is damaged, readable by others, or another user's */
export async function readSettingsFile(folder: string, name: string): Promise<unknown> {
  const path = join(folder, name);
  await assertPrivate(folder, '700');
  await assertPrivate(path, '600');
  const text = await toUsageError(readOwnFile(path));
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(
      `The settings file ${path} is not valid JSON. Fix it, or remove it and run speechgate connect again.`,
    );
  }
}

/** Runs the change with exclusive access to the settings. Not reentrant. */
export async function changeSettings<T>(folder: string, change: () => Promise<T>): Promise<T> {
  await toUsageError(ownFolder(folder));
  await assertPrivate(folder, '700');
  return toUsageError(withFileLock(join(folder, 'settings.lock'), change));
}

export async function writeSettingsFile(folder: string, name: string, value: unknown): Promise<void> {
  await toUsageError(ownFolder(folder));
  await assertPrivate(folder, '700');
  await replaceOwnFile(join(folder, name), `${JSON.stringify(value, null, 2)}\n`);
}

/** Refuses files that others can read, because the ids and keys in them may be known to others. */
async function assertPrivate(path: string, mode: string): Promise<void> {
  if (process.platform === 'win32') return;
  const status = await stat(path).catch((error) => {
    if (error.code !== 'ENOENT') throw error;
    return undefined;
  });
  if (!status || (status.mode & 0o077) === 0) return;
  throw new UsageError(
    `Other users of this machine can read ${path}, so it was not used. Run: chmod ${mode} '${path}'`,
  );
}

/** Reports files of other users, who could change settings and keys, and errors of the other class. */
export const toUsageError = <T>(work: Promise<T>, other: new () => Error = ForeignFileError): Promise<T> =>
  work.catch((error) => {
    throw error instanceof ForeignFileError || error instanceof other ? new UsageError(error.message) : error;
  });
