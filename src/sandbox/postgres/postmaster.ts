import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openOwnLog } from '../../lib/private-files.ts';
import { commandLineOf } from '../processes.ts';
import { type Account, cannotRun, spawnOptions } from './account.ts';
import type { Binaries } from './binaries.ts';

export interface Server extends Pick<Binaries, 'postgres' | 'pgCtl'> {
  readonly account: Account;
  readonly data: string;
  readonly logFile: string;
}

interface Postmaster {
  readonly pid: number;
  readonly port: number;
  readonly ready: boolean;
}

const TIMEOUT_SECONDS = 60;
const POLL_MS = 10;

const pidFile = (data: string) => join(data, 'postmaster.pid');

/** Undefined if only the file of a killed server is left. */
export async function findPostmaster(data: string): Promise<Postmaster | undefined> {
  const text = await readFile(pidFile(data), 'utf8').catch(() => '');
  const [pid, , , port, , , , status] = text.split('\n');
  if (!pid || !(await commandLineOf(Number(pid))).includes(data)) return undefined;
  return { pid: Number(pid), port: Number(port), ready: status?.trim() === 'ready' };
}

/** For two cores and a few hundred connections. The log has no statements or values (R40). */
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
/** Committed data still survives a kill of the server, because the operating system has it. */
const NOT_DURABLE = { fsync: 'off', full_page_writes: 'off' };

/** A length that Unix sockets allow on every platform. */
const MAX_SOCKET_PATH_BYTES = 103;

/** The data folder, which only its account can enter. Empty if the socket's path would be too long. */
export const socketFolder = (data: string): string =>
  Buffer.byteLength(join(data, '.s.PGSQL.65535')) <= MAX_SOCKET_PATH_BYTES ? data : '';

/** Starts the server in its own process group, because the gateway still needs it after Ctrl-C. */
export async function launchPostmaster(server: Server, port: number, isDurable: boolean): Promise<void> {
  const deadline = performance.now() + TIMEOUT_SECONDS * 1000;
  // PostgreSQL refuses to start if another program now has the process id in this file.
  if (!(await findPostmaster(server.data))) await rm(pidFile(server.data), { force: true });
  for (;;) {
    const complaint = await launchOnce(server, port, isDurable);
    if (complaint === undefined) return;
    // The workers of a killed server exit a moment after it.
    if (!complaint.includes('is still in use') || performance.now() > deadline) {
      throw new Error(
        `The embedded PostgreSQL did not start on port ${port}: ${complaint} Read ${server.logFile} for the cause.`,
      );
    }
    await sleep(POLL_MS);
  }
}

async function launchOnce(server: Server, port: number, isDurable: boolean): Promise<string | undefined> {
  const { postgres, data, account, logFile } = server;
  const settings = {
    ...SETTINGS,
    ...(isDurable ? {} : NOT_DURABLE),
    port: String(port),
    unix_socket_directories: socketFolder(data),
  };
  const log = await openOwnLog(logFile);
  try {
    if ((await log.stat()).size > 1_000_000) await log.truncate();
    const logStart = (await log.stat()).size;
    const child = spawn(
      postgres,
      ['-D', data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
      { ...spawnOptions(account), stdio: ['ignore', log.fd, log.fd], detached: true },
    );
    await once(child, 'spawn').catch((error) => {
      throw cannotRun(postgres, error);
    });
    child.unref();
    let hasEnded = false;
    child.once('exit', () => {
      hasEnded = true;
    });
    for (;;) {
      if (hasEnded) return (await readFile(logFile)).subarray(logStart).toString().trim();
      const running = await findPostmaster(data);
      if (running?.pid === child.pid && running?.ready) return undefined;
      await sleep(POLL_MS);
    }
  } finally {
    await log.close();
  }
}

export async function shutDownPostmaster({ data, pgCtl, account }: Server): Promise<void> {
  if (!(await findPostmaster(data))) return;
  const stop = ['stop', '-D', data, '-m', 'fast', '-w', '-t', String(TIMEOUT_SECONDS), '--silent'];
  try {
    await promisify(execFile)(pgCtl, stop, spawnOptions(account));
  } catch (error) {
    // pg_ctl also fails when the server is killed meanwhile: nothing is left to stop then.
    if (await findPostmaster(data)) throw error;
  }
}
