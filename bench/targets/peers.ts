import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PROJECT } from './program.ts';

const PEERS = join(PROJECT, 'bench/peers');

/** Installs what the gateway is compared with, in a folder of its own, unless its lock is installed already. */
export async function installPeers(onProgress: (message: string) => void): Promise<void> {
  const [locked, installed] = await Promise.all([
    changedAt('package-lock.json'),
    changedAt('node_modules/.package-lock.json'),
  ]);
  if (installed >= locked) return;
  onProgress('installing the peers into bench/peers/node_modules');
  await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts'], { cwd: PEERS });
}

/** 0 when there is no such file. */
const changedAt = async (file: string): Promise<number> =>
  (await stat(join(PEERS, file)).catch(() => undefined))?.mtimeMs ?? 0;
