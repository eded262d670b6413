import { join, resolve } from 'node:path';
import type { PinnedKey } from '../../client/index.ts';
import { dataDir, readSandboxFile, SANDBOX_FILE, type SandboxFile } from '../../sandbox/sandbox-file.ts';
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
 * @throws UsageError where there was none
 */
export async function readSandboxParts(folder: string = dataDir): Promise<SandboxParts> {
  const sandbox = await readSandboxFile(folder);
  if (!sandbox) {
    const path = join(resolve(folder), SANDBOX_FILE);
    throw new UsageError(`There is no ${path}. Start a sandbox with speechgate sandbox, or name its DATA_DIR.`);
  }
  const { baseUrl, creditAccount, wallet } = sandbox;
  const trust = wallet ? await readPinnedKeys(join(folder, 'signing-keys.json'), '--sandbox') : [];
  return { baseUrl, creditAccount, wallet, trust };
}
