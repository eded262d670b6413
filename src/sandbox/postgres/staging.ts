import { access, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { processExists } from '../processes.ts';
import { hasCode } from './system-error.ts';

/**
 * Creates `target`, a directory, all at once: `fill` writes it under another name, which tells this process, and it is
 * renamed when it is complete. A process that is killed meanwhile leaves nothing that could be mistaken for it, and what
 * it left is removed here. When another process is faster, its version stays and ours goes.
 */
export async function createWhole(target: string, fill: (directory: string) => Promise<void>): Promise<void> {
  await removeAbandoned(target);
  const fresh = await mkdtemp(`${target}.new-${process.pid}-`);
  try {
    await fill(fresh);
    await rename(fresh, target);
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    // Windows says EPERM when there is something in the place, and when this user may not write there.
    if (hasCode(error, 'EPERM')) await access(target).catch(() => Promise.reject(error));
    else if (!hasCode(error, 'EEXIST', 'ENOTEMPTY', 'ENOTDIR')) throw error;
  }
}

async function removeAbandoned(target: string): Promise<void> {
  const prefix = `${basename(target)}.new-`;
  for (const name of await readdir(dirname(target))) {
    if (!name.startsWith(prefix) || processExists(Number.parseInt(name.slice(prefix.length), 10))) continue;
    // An orphaned initdb may still be writing.
    await rm(join(dirname(target), name), { recursive: true, force: true, maxRetries: 10 });
  }
}
