import { constants } from 'node:fs';
import { access, readFile, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';

const MEMORY = '/dev/shm';
/** What the suite's databases need at most, and as much again for others. */
const ROOM = 4n * 1024n ** 3n;

/**
 * Where a database server of the tests may put its directory: in memory where there is room, since each test has a
 * database of its own, and file systems are slow at files that come and go by the thousand.
 */
export async function databaseDirectory(): Promise<string> {
  try {
    await access(MEMORY, constants.W_OK | constants.X_OK);
    const { bavail, bsize } = await statfs(MEMORY, { bigint: true });
    // Programs may have to be copied there, and run.
    const mount = (await readFile('/proc/mounts', 'utf8')).split('\n').find((line) => line.split(' ')[1] === MEMORY);
    return bavail * bsize >= ROOM && mount && !/\bnoexec\b/.test(mount) ? MEMORY : tmpdir();
  } catch {
    return tmpdir();
  }
}
