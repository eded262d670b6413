import { execFile, spawn } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openOwnLog } from '../../lib/private-files.ts';
import { hasArgument, processExists } from '../processes.ts';
import type { Account } from './account.ts';
import { cannotRun, surroundings } from './cluster.ts';
import { hasCode } from './system-error.ts';

/** What PostgreSQL writes of itself into postmaster.pid. */
export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  readonly ready: boolean;
}

const POLL_MS = 10;

/**
 * The server that runs on this data directory, ready or not, as its postmaster.pid tells. A file that a killed server
 * left behind is no server; when its process id belongs to another program by now, the file is removed, because
 * PostgreSQL would refuse to start.
 */
export async function findPostmaster(data: string): Promise<Postmaster | undefined> {
  const found = await readPidFile(data);
  if (!found) return undefined;
  if (await hasArgument(found.pid, data)) return found;
  if (processExists(found.pid)) await rm(pidFile(data), { force: true });
  return undefined;
}

const pidFile = (data: string) => join(data, 'postmaster.pid');

async function readPidFile(data: string): Promise<Postmaster | undefined> {
  try {
    const lines = (await readFile(pidFile(data), 'utf8')).split('\n');
    const pid = Number(lines[0]);
    if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
    return { pid, port: Number(lines[3] ?? 0), ready: lines[7]?.trim() === 'ready' };
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/**
 * Settings for two cores and a few hundred connections. The log names neither statements nor values (R40).
 */
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  max_connections: '200',
  shared_buffers: '128MB',
  jit: 'off',
  max_parallel_workers_per_gather: '0',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
};

/** The longest path of a Unix socket that every platform takes. */
const MAX_SOCKET_PATH = 103;

/**
 * The folder of the server's Unix socket: that of its data, which is its account's alone. Undefined where the path would
 * be too long for one.
 */
const socketFolder = (data: string): string | undefined =>
  Buffer.byteLength(join(data, '.s.PGSQL.65535')) <= MAX_SOCKET_PATH ? data : undefined;

/** What was committed still survives a kill of the server, since the operating system has it. */
const NOT_DURABLE = { fsync: 'off', full_page_writes: 'off' };

/** How an attempt to start the server ended. */
export type StartOutcome = { readonly ready: true } | { readonly ready: false; readonly log: string };

/**
 * Starts the server in a process group of its own: the Ctrl-C that ends the gateway must not end the database before
 * the gateway has finished with it. Resolves when it accepts connections, or when it has given up.
 */
export async function launch(
  options: { postgres: string; data: string; logFile: string; port: number; durable: boolean },
  account: Account,
): Promise<StartOutcome> {
  const settings = {
    ...SETTINGS,
    ...(options.durable ? {} : NOT_DURABLE),
    port: String(options.port),
    unix_socket_directories: socketFolder(options.data) ?? '',
  };
  const log = await openOwnLog(options.logFile);
  try {
    if ((await log.stat()).size > 1_000_000) await log.truncate();
    const logStart = (await log.stat()).size;
    const child = spawn(
      options.postgres,
      ['-D', options.data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
      { ...surroundings(account), stdio: ['ignore', log.fd, log.fd], detached: true },
    );
    child.unref();
    let ended = false;
    let failure: Error | undefined;
    child.once('exit', () => {
      ended = true;
    });
    child.once('error', (error) => {
      failure = cannotRun(options.postgres, error);
    });
    for (;;) {
      if (failure) throw failure;
      if (ended) return { ready: false, log: (await readFile(options.logFile)).subarray(logStart).toString() };
      const running = await readPidFile(options.data);
      if (running?.pid === child.pid && running?.ready) return { ready: true };
      await sleep(POLL_MS);
    }
  } finally {
    await log.close();
  }
}

/** Ends the server as `pg_ctl stop -m fast` does, and waits until it has gone. */
export async function shutDown(
  { pgCtl, data }: { pgCtl: string; data: string },
  account: Account,
  timeoutMs: number,
): Promise<void> {
  const running = await findPostmaster(data);
  if (!running) return;
  await promisify(execFile)(pgCtl, ['kill', 'INT', String(running.pid)], surroundings(account));
  const deadline = performance.now() + timeoutMs;
  while ((await readPidFile(data))?.pid === running.pid && (await hasArgument(running.pid, data))) {
    if (performance.now() > deadline) {
      throw new Error(`PostgreSQL (process ${running.pid}) did not stop within ${timeoutMs / 1000} s.`);
    }
    await sleep(POLL_MS);
  }
}
