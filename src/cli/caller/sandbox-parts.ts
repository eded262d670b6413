import { join, resolve } from 'node:path';
import type { PinnedKey } from '../../client/index.ts';
import { ForeignFileError, readUnsharedFile } from '../../lib/private-files.ts';
import {
  DamagedSandboxFileError,
  dataDir,
  readSandboxFile,
  SANDBOX_FILE,
  type SandboxFile,
} from '../../sandbox/sandbox-file.ts';
import { UsageError } from '../usage-error.ts';
import { readPinnedKeys } from './pinned-keys.ts';

/** What a sandbox gives whoever tries it. */
export interface SandboxParts extends Pick<SandboxFile, 'baseUrl' | 'creditAccount' | 'wallet'> {
  /** None where no chain can run. */
  readonly trust: readonly PinnedKey[];
}

/**
 * Reads what the sandbox with this folder has written.
 * @param folder otherwise DATA_DIR, or ./data
 * @throws UsageError where there was none, or another user may have written it
 */
export async function readSandboxParts(folder: string = dataDir): Promise<SandboxParts> {
  const sandbox = await own(() => readSandboxFile(folder));
  if (!sandbox) {
    const path = join(resolve(folder), SANDBOX_FILE);
    throw new UsageError(`There is no ${path}. Start a sandbox with speechgate sandbox, or name its DATA_DIR.`);
  }
  const { baseUrl, creditAccount, wallet } = sandbox;
  if (!wallet) return { baseUrl, creditAccount, wallet, trust: [] };
  const path = join(folder, 'signing-keys.json');
  const keys = await own(() => readUnsharedFile(path));
  if (!/^[[{]/.test(keys ?? ''))
    throw new UsageError(`${path} has no keys. Start the sandbox again, which writes them.`);
  return { baseUrl, creditAccount, wallet, trust: await readPinnedKeys(keys as string, '--sandbox') };
}

/** Whoever could write these files would choose the service and its keys. */
async function own<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const isRefused = error instanceof ForeignFileError || error instanceof DamagedSandboxFileError;
    throw isRefused ? new UsageError(error.message) : error;
  }
}
