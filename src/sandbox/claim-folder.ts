import { realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';
import { lockDirectory } from './lock.ts';

/** Any number that nothing else in this database locks. */
const SANDBOX_LOCK = 7_300_121;
const NAME = 'speechgate-sandbox-';

export type Claim =
  | { readonly outcome: 'claimed'; close(): Promise<void> }
  /** `pid` of the process that has it; undefined when it has just begun, or ended. */
  | { readonly outcome: 'taken'; readonly pid: number | undefined };

const pidFile = (dataDir: string): string => join(dataDir, 'sandbox.pid');

/** Makes this process the only sandbox in the folder, until it closes the claim or ends, however that comes. */
export async function claimFolder(dataDir: string): Promise<Claim> {
  const lock = await lockDirectory(await realpath(dataDir));
  if (!lock) return { outcome: 'taken', pid: Number(await readUnsharedFile(pidFile(dataDir))) || undefined };
  await rm(pidFile(dataDir), { force: true });
  return { outcome: 'claimed', close: () => lock.release() };
}

/** Tells others who has claimed the folder; not before the database is in it, whose place depends on its being empty. */
export const signFolder = (dataDir: string): Promise<void> => replaceOwnFile(pidFile(dataDir), `${process.pid}\n`);

/** Likewise, on the database: the lock is that of a connection. */
export async function claimDatabase(databaseUrl: string): Promise<Claim> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: `${NAME}${process.pid}` });
  // Losing it is noticed by whoever uses the database next.
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
