import { randomBytes } from 'node:crypto';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { ForeignFileError, ownFolder, readOwnFile, replaceOwnFile } from '../../lib/private-files.ts';

export class UnknownDatabaseError extends Error {}

const ID_FILE = 'id';
const ID = /^[0-9a-f]{32}$/;

/** @param home the final path of the database, without links @throws UnknownDatabaseError */
export async function listDatabase(directory: string, home: string): Promise<void> {
  const list = await listFolder();
  const id = randomBytes(16).toString('hex');
  await replaceOwnFile(join(list, id), home);
  await replaceOwnFile(join(directory, ID_FILE), id);
}

/**
 * A database's settings can run any program, so a database from a checkout or archive must not start.
 * @throws UnknownDatabaseError unless the database is recorded for this path
 */
export async function assertListed(home: string): Promise<void> {
  const list = await listFolder();
  const id = (await readIfOwn(join(home, ID_FILE))) ?? '';
  if (ID.test(id) && (await readIfOwn(join(list, id))) === home) return;
  throw new UnknownDatabaseError(
    `The database in ${home} is not in the list of those that this user's sandboxes have made (${list}). Its settings ` +
      'could run any program, so it was not started. Remove it to begin with an empty one; or, if you are sure that it is ' +
      'your own, of an earlier version or of another place, start once with --adopt (npm run sandbox -- --adopt).',
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
    throw unusable(`${folder} can't be used for it (${(error as Error).message})`);
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
    `There is no place for the list of databases that this user's sandboxes have made: ${reason}. Set XDG_STATE_HOME to a ` +
      'folder of your own, or SANDBOX_DATABASE_URL. No database was started.',
  );
