import { join } from 'node:path';
import pg from 'pg';
import { closeOnFailure } from '../lib/close-on-failure.ts';
import { FileBusyError, FileLock } from '../lib/file-lock.ts';
import { ForeignFileError, readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';
import { UnknownDatabaseError } from './postgres/home.ts';

const SANDBOX_LOCK = 7_300_121;
const NAME = 'speechgate-sandbox-';

export type Claim =
  | { readonly outcome: 'claimed'; close(): Promise<void> }
  | { readonly outcome: 'taken'; readonly pid: number | undefined };

const UNWRITABLE = ['EACCES', 'EPERM', 'EROFS', 'ENOENT', 'ENOTDIR'];

/** Undefined if the folder is not why a step failed. */
export function folderFault(dataDir: string, error: NodeJS.ErrnoException): string | undefined {
  const { code = '', path = '', message } = error;
  if (error instanceof ForeignFileError || error instanceof UnknownDatabaseError) return message;
  if (/\bENOSPC\b|\bEDQUOT\b|No space left on device/.test(message)) {
    return `The disk of ${dataDir} is full. Free some space, or choose another folder with DATA_DIR.`;
  }
  if (!UNWRITABLE.includes(code) || !path.startsWith(dataDir)) return undefined;
  return `${path} is not writable (${code}). Make ${dataDir} a folder that you can write to, or choose another DATA_DIR.`;
}

export async function claimFolder(dataDir: string): Promise<Claim> {
  const pidFile = join(dataDir, 'sandbox.pid');
  const lock = await FileLock.open(join(dataDir, 'sandbox.lock'));
  try {
    await lock.acquire(0);
  } catch (error) {
    await lock.close();
    if (!(error instanceof FileBusyError)) throw error;
    return { outcome: 'taken', pid: Number(await readUnsharedFile(pidFile)) || undefined };
  }
  await closeOnFailure(lock, () => replaceOwnFile(pidFile, `${process.pid}\n`));
  return { outcome: 'claimed', close: () => lock.close() };
}

/** The lock ends with its connection. */
export async function claimDatabase(databaseUrl: string): Promise<Claim> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: `${NAME}${process.pid}` });
  // If the server stops, its next query reports that.
  client.on('error', () => {});
  await client.connect();
  const { rows } = await client.query('select pg_try_advisory_lock($1) as claimed', [SANDBOX_LOCK]);
  if (rows[0].claimed) return { outcome: 'claimed', close: () => client.end() };
  const holder = await client.query(
    `select substr(application_name, length($2::text) + 1)::integer as pid
     from pg_locks join pg_stat_activity using (pid)
     where locktype = 'advisory' and objid = $1::bigint::oid and granted and database = (
       select oid from pg_database where datname = current_database()) and starts_with(application_name, $2::text)`,
    [SANDBOX_LOCK, NAME],
  );
  await client.end();
  return { outcome: 'taken', pid: holder.rows[0]?.pid };
}
