import { execFile } from 'node:child_process';
import { mkdir, statfs } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { Owner } from '../../test/support/child.ts';

const run = promisify(execFile);
/** More than an hour of the soak writes; only what is used takes memory. */
const SIZE_BYTES = 12 * 1024 ** 3;

/** A file system in memory that can be full. */
export interface Disk {
  /** From now on there is no room for another page. */
  fill(): Promise<void>;
  free(): Promise<void>;
}

/** Makes it at this path, an empty folder. Where that is not allowed, the folder stays what it is, and the reason is told. */
export async function mountDisk(owner: Owner, path: string): Promise<Disk | string> {
  await mkdir(path, { recursive: true });
  try {
    await run('mount', ['-t', 'tmpfs', '-o', `size=${SIZE_BYTES},mode=0711`, 'tmpfs', path]);
  } catch (error) {
    return `no disk can be full here: mount needs root (${(error as Error).message.trim()})`;
  }
  // Whoever still has a file open there is about to end.
  owner.teardown(() => run('umount', ['--lazy', path]));
  const resize = (bytes: number) => run('mount', ['-o', `remount,size=${bytes}`, path]);
  return {
    fill: async () => {
      // What is written meanwhile would make the size smaller than what is used, which is refused.
      for (let tries = 100; ; tries--) {
        const { blocks, bfree, bsize } = await statfs(path);
        const isFull = await resize((blocks - bfree) * bsize).then(
          () => true,
          () => false,
        );
        if (isFull) return;
        if (tries === 0) throw new Error(`${path} could not be filled.`);
      }
    },
    free: async () => {
      await resize(SIZE_BYTES);
    },
  };
}
