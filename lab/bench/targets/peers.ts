import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PROJECT } from './program.ts';

/**
 * Installs the peers in their own folder, unless the lock file is already installed.
 * @param folder relative to the project, such as `lab/bench/peers`
 */
export async function installPeers(folder: string, onProgress: (message: string) => void): Promise<void> {
  const [locked, installed] = await Promise.all([
    changedAt(join(PROJECT, folder, 'package-lock.json')),
    changedAt(join(PROJECT, folder, 'node_modules/.package-lock.json')),
  ]);
  if (installed >= locked) return;
  onProgress(`installing the peers into ${folder}/node_modules`);
  const options = { cwd: join(PROJECT, folder) };
  await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts'], options);
}

const changedAt = async (file: string): Promise<number> => (await stat(file).catch(() => undefined))?.mtimeMs ?? 0;
