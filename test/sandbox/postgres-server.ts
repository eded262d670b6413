import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { type Test, t } from 'tap';
import { serverAccount } from '../../src/sandbox/postgres/account.ts';
import { type PostgresOptions, startPostgres } from '../../src/sandbox/postgres.ts';
import { projectFile } from '../support/project.ts';

export const account = await serverAccount();

/** Shared by the tests that need a cluster, but not an empty one: creating one takes a second. */
export const dataDir = await newDirectory();
export const data = () => join(dataDir, 'postgres/cluster/data');
t.teardown(() => rm(dataDir, { recursive: true, force: true }));

/** Starts it without fsync, and stops it with the test at the latest. */
export async function start(t: Test, options: PostgresOptions) {
  const server = await startPostgres({ durable: false, ...options });
  t.teardown(server.stop);
  return server;
}

export function newDirectory(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'speechgate-postgres-'));
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

/** A process, in a group of its own, that starts PostgreSQL and prints its URL. */
export function startElsewhere(t: Test, directory: string): ChildProcess {
  const module = fileURLToPath(projectFile('dist/sandbox/postgres.js'));
  const script = `
    const { startPostgres } = await import(${JSON.stringify(module)});
    const { url } = await startPostgres({ dataDir: ${JSON.stringify(directory)}, durable: false });
    console.log(url);
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  t.teardown(() => killGroup(child));
  return child;
}

export function killGroup(child: ChildProcess): void {
  if (child.pid && child.exitCode === null && child.signalCode === null) process.kill(-child.pid, 'SIGKILL');
}
