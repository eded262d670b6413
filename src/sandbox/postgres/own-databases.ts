import { randomBytes } from 'node:crypto';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { ForeignFileError, ownFolder, readOwnFile, replaceOwnFile } from '../../lib/private-files.ts';

/** An embedded database must not be started; the message has the way out. */
export class UnknownDatabaseError extends Error {}

const ID_FILE = 'id';
const ID = /^[0-9a-f]{32}$/;

/**
 * Lists a database as one that a sandbox of this user has made.
 * @param directory that holds it now
 * @param home where it is, or will be, without links
 * @throws UnknownDatabaseError
 */
export async function listDatabase(directory: string, home: string): Promise<void> {
  const list = await listFolder();
  const id = randomBytes(16).toString('hex');
  await replaceOwnFile(join(list, id), home);
  await replaceOwnFile(join(directory, ID_FILE), id);
}

/**
 * The settings of a database can run any program: one that came with a checkout or an archive must not be started.
 * @throws UnknownDatabaseError for one that is not listed for this place
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

/** Outside every checkout, in this user's folder for state (XDG Base Directory Specification). */
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
  // Relative paths, which a checkout could hold, are invalid by the specification.
  if (isAbsolute(XDG_STATE_HOME)) return XDG_STATE_HOME;
  const home = homeOfUser();
  if (!isAbsolute(home)) throw unusable('this user has no home folder');
  return join(home, '.local/state');
}

function homeOfUser(): string {
  try {
    return homedir();
  } catch {
    return '';
  }
}

const unusable = (reason: string) =>
  new UnknownDatabaseError(
    `There is no place for the list of databases that this user's sandboxes have made: ${reason}. Set XDG_STATE_HOME to a ` +
      'folder of your own, or SANDBOX_DATABASE_URL. No database was started.',
  );
