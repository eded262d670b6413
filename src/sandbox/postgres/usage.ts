import { resolve } from 'node:path';
import pg from 'pg';
import { type Cluster, ROLE } from './cluster.ts';
import { hasCode } from './system-error.ts';

/** Any number, the same in every version: processes of different versions may share a server. */
const USAGE_LOCK = 7_300_118;

/** Connects to the server on this port if it is the cluster's; undefined when it is not, or does not answer yet. */
export async function connect(cluster: Cluster, port: number): Promise<pg.Client | undefined> {
  const client = new pg.Client({
    host: '127.0.0.1',
    port,
    user: ROLE,
    password: cluster.password,
    database: 'postgres',
    ssl: false,
    application_name: 'speechgate-keeper',
    connectionTimeoutMillis: 5000,
  });
  // Losing the connection is noticed by whoever uses it next.
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query("select current_setting('data_directory') as data");
    // On Windows PostgreSQL writes slashes.
    if (resolve(rows[0].data) === cluster.data) return client;
  } catch {}
  await client.end();
  return undefined;
}

/**
 * Registers this connection as a user of the server. Each user holds a shared advisory lock for as long as it lives, so
 * that PostgreSQL itself forgets a process that was killed. False when somebody is just stopping the server.
 */
export async function register(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query('select pg_try_advisory_lock_shared($1) as registered', [USAGE_LOCK]);
  return rows[0].registered;
}

/**
 * Ends the registration, and tells whether nobody else uses the server. If so, this connection holds the lock
 * exclusively until it ends: the server may be stopped, and nobody can register meanwhile. Of two that leave at once the
 * other may have found itself alone first, and have stopped the server under this connection.
 */
export async function unregister(client: pg.Client): Promise<boolean> {
  try {
    await client.query('select pg_advisory_unlock_shared($1)', [USAGE_LOCK]);
    const { rows } = await client.query('select pg_try_advisory_lock($1) as alone', [USAGE_LOCK]);
    return rows[0].alone;
  } catch {
    return false;
  }
}

/** Creates the database unless it exists. */
export async function ensureDatabase(client: pg.Client, name: string): Promise<void> {
  const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
  if (rowCount) return;
  try {
    await client.query(`create database ${pg.escapeIdentifier(name)}`);
  } catch (error) {
    // Two processes that create it at once: one gets either of these.
    if (!hasCode(error, '42P04', '23505')) throw error;
  }
}
