import {
  access,
  chmod,
  chown,
  constants,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  realpath,
  rm,
  stat,
  symlink,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ownFolder } from '../../lib/private-files.ts';
import { type Account, obstacle } from './account.ts';
import { assertListed, listDatabase } from './own-databases.ts';
import { createWhole } from './staging.ts';
import { hasCode } from './system-error.ts';

/** Where a database goes that must live outside DATA_DIR: kept across reboots, and not swept by age as /tmp is. */
const OUTSIDE = ['/var/lib', '/var/tmp'];

/**
 * The directory that holds everything of the embedded database; it belongs to the server's account alone. It is
 * DATA_DIR/postgres, or what that symbolic link points to: as root, with a DATA_DIR that `nobody` can't reach (under a
 * home of mode 0700, say), the database lives in /var/lib/speechgate and DATA_DIR/postgres links there.
 * @param adopt takes one that is there for this user's own
 * @throws UnknownDatabaseError
 */
export async function databaseHome(
  dataDir: string,
  account: Account,
  onProgress: (message: string) => void,
  adopt = false,
): Promise<string> {
  const entry = join(await ownFolder(dataDir), 'postgres');
  const known = await lstat(entry).catch((error) => {
    if (hasCode(error, 'ENOENT')) return undefined;
    if (!hasCode(error, 'EACCES')) throw error;
    throw new Error(`This user can't enter ${dataDir}: start as its owner, or choose another DATA_DIR.`);
  });
  // What root has linked there belongs to root, and what it links to belongs to the server's account.
  if (known && known.uid !== account.uid && known.uid !== process.geteuid?.()) {
    throw new Error(`${entry} belongs to user id ${known.uid}: remove it, or choose another DATA_DIR.`);
  }
  if (!known) await createHome(entry, account, onProgress);

  const home = await realpath(entry).catch((error) => {
    if (!hasCode(error, 'ENOENT')) throw error;
    throw new Error(`${entry} links to a directory that is gone. Remove the link to start with an empty database.`);
  });
  const { uid } = await stat(home);
  if (uid !== account.uid) {
    throw new Error(
      `The database in ${home} belongs to user id ${uid}, and this process would run it as user id ${account.uid} ` +
        '(root runs it as nobody). Start as the former user, or choose another DATA_DIR.',
    );
  }
  const wall = await obstacle(home, account);
  if (wall) {
    throw new Error(
      `The user nobody, who runs the database, can't enter ${wall} any more: allow it (chmod o+x), or choose another DATA_DIR.`,
    );
  }
  if (adopt) await listDatabase(home, home);
  else await assertListed(home);
  return home;
}

async function createHome(entry: string, account: Account, onProgress: (message: string) => void): Promise<void> {
  if (await admit(dirname(entry), account)) {
    await createWhole(entry, async (directory) => {
      await listDatabase(directory, entry);
      await chown(directory, account.uid, account.gid);
    });
    return;
  }
  const parent = join(await firstWritable(OUTSIDE), 'speechgate');
  if (await mkdir(parent, { recursive: true, mode: 0o755 })) await chmod(parent, 0o755);
  const { uid } = await lstat(parent);
  if (uid !== process.geteuid?.()) throw new Error(`${parent} belongs to user id ${uid}: remove it.`);
  const outside = await mkdtemp(join(parent, 'postgres-'));
  await listDatabase(outside, await realpath(outside));
  await chown(outside, account.uid, account.gid);
  try {
    await symlink(outside, entry);
  } catch (error) {
    await rm(outside, { recursive: true });
    if (hasCode(error, 'EEXIST')) return;
    throw error;
  }
  onProgress(`The user nobody can't reach ${dirname(entry)}: the database lives in ${outside}`);
}

/**
 * Whether the account gets into the directory. When nothing but a directory that is still empty stands in its way,
 * as with a fresh `mktemp -d`, the account's group is let through it.
 */
async function admit(directory: string, account: Account): Promise<boolean> {
  const wall = await obstacle(directory, account);
  if (wall === undefined) return true;
  if (wall !== directory || (await obstacle(dirname(directory), account)) || (await readdir(directory)).length > 0) {
    return false;
  }
  const { uid, mode } = await stat(directory);
  if (mode & 0o070) return false;
  await chown(directory, uid, account.gid);
  await chmod(directory, (mode & 0o7777) | 0o010);
  return true;
}

async function firstWritable(directories: string[]): Promise<string> {
  for (const directory of directories) {
    const writable = await access(directory, constants.W_OK).then(
      () => true,
      () => false,
    );
    if (writable) return directory;
  }
  throw new Error(
    `None of ${directories.join(', ')} can be written to: choose a DATA_DIR that the user nobody can reach.`,
  );
}
