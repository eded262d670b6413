import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PROJECT } from '../test/support/project.ts';
import { progress } from './figures.ts';

/**
 * Installs other projects' servers in their own folder, unless they are installed. Its package.json pins each peer's
 * version. There is no lock file: what a peer depends on is the newest version that it accepts on that day.
 * @param folder relative to the project, such as `lab/bench/peers`
 */
export async function installPeers(folder: string): Promise<void> {
  const [pinned, installed] = await Promise.all([
    changedAt(join(PROJECT, folder, 'package.json')),
    changedAt(join(PROJECT, folder, 'node_modules/.package-lock.json')),
  ]);
  if (installed >= pinned) return;
  progress(`installing the peers into ${folder}/node_modules`);
  const args = ['install', '--no-package-lock', '--no-audit', '--no-fund', '--ignore-scripts'];
  await promisify(execFile)('npm', args, { cwd: join(PROJECT, folder) });
}

const changedAt = async (file: string): Promise<number> => (await stat(file).catch(() => undefined))?.mtimeMs ?? 0;
