import { join } from 'node:path';
import pg from 'pg';
import { type Test, t } from 'tap';
import { serverAccount } from '../../src/sandbox/postgres/account.ts';
import { type PostgresOptions, startPostgres } from '../../src/sandbox/postgres.ts';
import { type Child, startScript } from '../support/child.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';

export const account = await serverAccount();

/** Shared by the tests that need a cluster, but not an empty one: creating one takes a second. */
export const dataDir = await sandboxFolder(t);
export const data = () => join(dataDir, 'postgres/cluster/data');

/** Starts it without fsync, and stops it with the test at the latest. */
export async function start(t: Test, options: PostgresOptions) {
  const server = await startPostgres({ durable: false, ...options });
  t.teardown(server.stop);
  return server;
}

export async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url);
  try {
    await client.connect();
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

/** Starts PostgreSQL in a process group of its own, which prints its URL. */
export const startElsewhere = (t: Test, directory: string): Child =>
  startScript(
    t,
    { startPostgres: 'src/sandbox/postgres.ts' },
    `const { url } = await startPostgres({ dataDir: '${directory}', durable: false });
    console.log(url);
    setInterval(() => {}, 1000);`,
  );
