import { randomBytes } from 'node:crypto';
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
  rename,
  rm,
  stat,
  symlink,
} from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import { ForeignFileError, ownFolder, readOwnFile, replaceOwnFile, unlessAbsent } from '../../lib/private-files.ts';
import { type Account, obstacle } from './account.ts';

export class UnknownDatabaseError extends Error {}

const ID_FILE = 'id';
const ID = /^[0-9a-f]{32}$/;

/** The files that a sandbox writes into its folder first. */
const CLAIM_FILES: readonly string[] = ['sandbox.lock', 'sandbox.pid'];

/** For a database outside DATA_DIR: kept across reboots, and not cleaned by age as /tmp is. */
const OUTSIDE = ['/var/lib', '/var/tmp'];

/**
 * Root's database is in /var/lib/speechgate if `nobody` cannot reach DATA_DIR, for example under a home of mode 0700.
 * DATA_DIR/postgres then links to it.
 * @param adopt accepts an existing database as this user's
 * @throws UnknownDatabaseError
 */
export async function databaseHome(
  dataDir: string,
  account: Account,
  onProgress: (message: string) => void,
  adopt = false,
): Promise<string> {
  const entry = join(await ownFolder(dataDir), 'postgres');
  const known = await unlessAbsent(lstat(entry));
  // Root's link belongs to root, and its target to the server's account.
  if (known && known.uid !== account.uid && known.uid !== process.geteuid?.()) {
    throw new Error(`${entry} belongs to user id ${known.uid}. Remove it, or choose another DATA_DIR.`);
  }
  if (!known) await createHome(entry, account, onProgress);

  const home = await unlessAbsent(realpath(entry));
  if (home === undefined)
    throw new Error(
      `${entry} links to a folder that does not exist any more. Remove the link to start with an empty database.`,
    );
  const { uid } = await stat(home);
  if (uid !== account.uid) {
    throw new Error(
      `The database in ${home} belongs to user id ${uid}, but would run as user id ${account.uid} (root runs it as nobody). ` +
        `Run chown -R ${account.uid} on it, start the sandbox as its owner, or choose another DATA_DIR.`,
    );
  }
  const inaccessibleDir = await obstacle(home, account);
  if (inaccessibleDir) {
    throw new Error(
      `The user nobody, who runs the database, can't enter ${inaccessibleDir} any more. Allow it (chmod o+x), or choose another DATA_DIR.`,
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
  if (uid !== process.geteuid?.()) {
    throw new Error(`${parent} belongs to another user (user id ${uid}). Remove it, or choose another DATA_DIR.`);
  }
  const outside = await mkdtemp(join(parent, 'postgres-'));
  await listDatabase(outside, await realpath(outside));
  await chown(outside, account.uid, account.gid);
  await symlink(outside, entry);
  onProgress(`The user nobody can't enter ${dirname(entry)}, so the database is in ${outside}`);
}

/** If only an unused directory is in the way, as with a fresh `mktemp -d`, this opens it to the account's group. */
async function admit(directory: string, account: Account): Promise<boolean> {
  const inaccessibleDir = await obstacle(directory, account);
  if (inaccessibleDir === undefined) return true;
  if (inaccessibleDir !== directory || (await obstacle(dirname(directory), account)) || !(await isUnused(directory))) {
    return false;
  }
  const { uid, mode } = await stat(directory);
  if (mode & 0o070) return false;
  await chown(directory, uid, account.gid);
  await chmod(directory, (mode & 0o7777) | 0o010);
  return true;
}

const isUnused = async (directory: string): Promise<boolean> =>
  (await readdir(directory)).every((name) => CLAIM_FILES.includes(name));

async function firstWritable(directories: string[]): Promise<string> {
  for (const directory of directories) {
    const writable = await access(directory, constants.W_OK).then(
      () => true,
      () => false,
    );
    if (writable) return directory;
  }
  throw new Error(
    `The user nobody, who runs the database for root, can't enter DATA_DIR, and none of the folders ${directories.join(', ')} is writable in its place. Choose a DATA_DIR that nobody can enter (chmod o+x).`,
  );
}

/** Fills a temporary directory and renames it. Removes what a killed process left. */
export async function createWhole(target: string, fill: (directory: string) => Promise<void>): Promise<void> {
  const fresh = `${target}.new`;
  // An orphaned initdb may still be writing.
  await rm(fresh, { recursive: true, force: true, maxRetries: 10 });
  await mkdir(fresh, { mode: 0o700 });
  try {
    await fill(fresh);
    await rename(fresh, target);
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    throw error;
  }
}

/** @param home the final path of the database, without links @throws UnknownDatabaseError */
async function listDatabase(directory: string, home: string): Promise<void> {
  const list = await listFolder();
  const id = randomBytes(16).toString('hex');
  await replaceOwnFile(join(list, id), home);
  await replaceOwnFile(join(directory, ID_FILE), id);
}

/**
 * A database's settings can run any program, so a database from a checkout or archive must not start.
 * @throws UnknownDatabaseError unless the database is recorded for this path
 */
async function assertListed(home: string): Promise<void> {
  const list = await listFolder();
  const id = (await readIfOwn(join(home, ID_FILE))) ?? '';
  if (ID.test(id) && (await readIfOwn(join(list, id))) === home) return;
  throw new UnknownDatabaseError(
    `The database in ${home} is not in ${list}, the list of databases that this user's sandboxes made. Its settings could ` +
      'run any program, so it was not started. Remove it to start with an empty one; or, if you are sure that it is your ' +
      'own, start once with --adopt (npm run sandbox -- --adopt).',
  );
}

const readIfOwn = (path: string): Promise<string | undefined> =>
  readOwnFile(path).catch((error) => {
    if (!(error instanceof ForeignFileError)) throw error;
    return undefined;
  });

/** Outside every checkout, in this user's state folder (XDG Base Directory Specification). */
async function listFolder(): Promise<string> {
  const folder = join(stateFolder(), 'speechgate');
  try {
    return await ownFolder(join(await ownFolder(folder), 'databases'));
  } catch (error) {
    throw unusable(`${folder} can't be used (${(error as Error).message})`);
  }
}

function stateFolder(): string {
  const { XDG_STATE_HOME = '' } = process.env;
  // The specification says to ignore relative paths. A checkout could hold one.
  if (isAbsolute(XDG_STATE_HOME)) return XDG_STATE_HOME;
  try {
    if (isAbsolute(homedir())) return join(homedir(), '.local/state');
  } catch {}
  throw unusable('this user has no home folder');
}

const unusable = (reason: string) =>
  new UnknownDatabaseError(
    `The list of this user's sandbox databases can't be stored: ${reason}. Set XDG_STATE_HOME to a folder of your own, or ` +
      'set SANDBOX_DATABASE_URL. No database was started.',
  );
