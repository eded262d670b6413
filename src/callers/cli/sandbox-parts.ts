import { join, resolve } from 'node:path';
import { readUnsharedFile } from '../../lib/private-files.ts';
import { UsageError } from '../../lib/usage-error.ts';
import { DamagedSandboxFileError, dataDir, readSandboxFile, SANDBOX_FILE } from '../../sandbox/sandbox-file.ts';
import { readPinnedKeys } from './read-values.ts';
import { toUsageError } from './settings-folder.ts';

/** @param folder default: DATA_DIR, or ./data */
export async function readSandboxParts(folder: string = dataDir) {
  const sandbox = await toUsageError(readSandboxFile(folder), DamagedSandboxFileError);
  if (!sandbox) {
    const path = join(resolve(folder), SANDBOX_FILE);
    throw new UsageError(`${path} does not exist. Start a sandbox with speechgate sandbox, or name its DATA_DIR.`);
  }
  const { baseUrl, creditAccount, wallet, chain } = sandbox;
  const node = chain?.rpcUrl;
  if (!wallet) return { baseUrl, creditAccount, wallet, node, trust: [] };
  const path = join(folder, 'signing-keys.json');
  const keys = await toUsageError(readUnsharedFile(path));
  if (!/^[[{]/.test(keys ?? '')) throw new UsageError(`${path} has no keys. Restart the sandbox to write them.`);
  return { baseUrl, creditAccount, wallet, node, trust: await readPinnedKeys(keys as string, '--sandbox') };
}
