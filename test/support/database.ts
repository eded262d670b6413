import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Test } from 'tap';
import { startPostgres } from '../../src/sandbox/postgres.ts';
import { databaseDirectory } from './database-directory.ts';
import { projectFile } from './project.ts';

const MIGRATIONS = projectFile('db/migrations/');
const MIGRATE = projectFile('src/db/migrate.ts');

/** Any number that the code under test does not lock. */
const TEMPLATE_LOCK = 7_300_119;
/** How long a dropped database waits for connections that are being closed. */
const GRACE_MS = 5000;

const drops: Promise<void>[] = [];
let admin: Promise<string> | undefined;
let template: Promise<string> | undefined;

/**
 * A database of the test's own with the current schema, a copy of a template that is migrated once per server. It is
 * dropped after the test, while the next one runs. The server is that of TEST_DATABASE_URL, or an embedded one that is
 * started for this process.
 * @param filled another such database to copy, which nothing is connected to
 */
export async function testDatabase(t: Test, filled?: { readonly url: string }): Promise<{ url: string }> {
  admin ??= adminUrl();
  const server = await admin;
  template ??= migratedTemplate(server);
  const source = filled ? new URL(filled.url).pathname.slice(1) : await template;
  return makeDatabase(t, server, `template ${source} strategy file_copy`);
}

/** Likewise, without any tables. */
export async function emptyDatabase(t: Test): Promise<{ url: string }> {
  admin ??= adminUrl();
  return makeDatabase(t, await admin, '');
}

async function makeDatabase(t: Test, server: string, how: string): Promise<{ url: string }> {
  const name = `speechgate_test_${randomUUID().replaceAll('-', '')}`;
  await withClient(server, (client) => client.query(`create database ${name} ${how}`));
  t.teardown(() => {
    drops.push(dropWhenClosed(server, name));
  });
  return { url: withDatabase(server, name) };
}

async function adminUrl(): Promise<string> {
  if (process.env.TEST_DATABASE_URL) return process.env.TEST_DATABASE_URL;
  const dataDir = await mkdtemp(join(await databaseDirectory(), 'speechgate-test-'));
  const postgres = await startPostgres({ dataDir, durable: false });
  process.once('beforeExit', async () => {
    await Promise.all(drops);
    await postgres.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  return postgres.adminUrl;
}

/** Its name tells the schema; while it is being made it has another one. Test files make it at the same time. */
async function migratedTemplate(server: string): Promise<string> {
  const name = `speechgate_template_${await schemaVersion()}`;
  await withClient(server, async (client) => {
    await client.query('select pg_advisory_lock($1)', [TEMPLATE_LOCK]);
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (rowCount) return;
    await client.query(`drop database if exists ${name}_new with (force)`);
    await client.query(`create database ${name}_new`);
    const { migrate } = await import('../../src/db/migrate.ts');
    await migrate(withDatabase(server, `${name}_new`));
    // Without connections, autovacuum keeps out too, and nothing can get in the way of a copy.
    await client.query(`alter database ${name}_new with allow_connections false`);
    await client.query(`alter database ${name}_new rename to ${name}`);
  });
  return name;
}

async function schemaVersion(): Promise<string> {
  const hash = createHash('sha256').update(await readFile(MIGRATE));
  for (const file of (await readdir(MIGRATIONS)).sort()) {
    hash.update(file).update(await readFile(new URL(file, MIGRATIONS)));
  }
  return hash.digest('hex').slice(0, 16);
}

async function dropWhenClosed(server: string, name: string): Promise<void> {
  await withClient(server, async (client) => {
    for (const deadline = performance.now() + GRACE_MS; performance.now() < deadline; await sleep(20)) {
      const { rowCount } = await client.query('select from pg_stat_activity where datname = $1', [name]);
      if (rowCount === 0) break;
    }
    await client.query(`drop database ${name} with (force)`);
  });
}

async function withClient<T>(url: string, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  return changed.href;
}
