import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, rm, truncate } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openOwnLog, ownFolder, readUnsharedFile, replaceOwnFile } from '../../lib/private-files.ts';
import { isFree } from '../free-port.ts';
import { commandLineOf } from '../processes.ts';
import { CHAIN_ID } from './chain-client.ts';

const POLL_MS = 10;
/** Finalizes a block once two are on top of it, because the sandbox has few blocks. */
const FINALITY = ['--slots-in-an-epoch', '1'];
/** Keeps the state of 128 blocks. Otherwise anvil writes thousands to the disk, each with all accounts. */
const HISTORY = ['--prune-history', '128'];
const CHAIN = ['--no-cors', '--chain-id', String(CHAIN_ID), '--accounts', '0', '--quiet'];
export const CHAIN_OPTIONS = [...CHAIN, ...FINALITY, ...HISTORY];

export function packagedBinary(platform: NodeJS.Platform, arch: NodeJS.Architecture): string {
  const machine = arch === 'x64' ? 'amd64' : arch;
  return `@foundry-rs/anvil-${platform}-${machine}/bin/${platform === 'win32' ? 'anvil.exe' : 'anvil'}`;
}

export function findBinary(): string | undefined {
  try {
    return createRequire(import.meta.url).resolve(packagedBinary(process.platform, process.arch));
  } catch {
    return undefined;
  }
}

export async function whyUnrunnable(binary: string): Promise<string | undefined> {
  try {
    await promisify(execFile)(binary, ['--version'], { env: {} });
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message.trim() : String(error);
  }
}

/** A multicast address: on Linux a program can listen there, but nobody can connect. */
const UNREACHABLE_HOST = '224.0.0.1';
/** Ports that no browser connects to (https://fetch.spec.whatwg.org/#port-blocking). */
const BLOCKED_PORTS = [6000, 6665, 6666, 6667, 6668, 6669, 6697, 10080, 5060, 5061, 6566, 4045, 4190, 3659];

/** anvil always serves HTTP beside its socket. No web page may reach it, because its WebSocket controls the chain. */
export async function httpArguments(platform: NodeJS.Platform = process.platform): Promise<string[]> {
  if (platform === 'linux') return ['--host', UNREACHABLE_HOST, '--port', '0'];
  for (const port of BLOCKED_PORTS) {
    if (await isFree(port)) return ['--host', '127.0.0.1', '--port', String(port)];
  }
  throw new Error(
    `The local chain needs one of the ports ${BLOCKED_PORTS.join(', ')}, but all are in use. Stop a program that uses one.`,
  );
}

/** A length that Unix sockets allow on every platform. */
const MAX_SOCKET_PATH_BYTES = 103;

export async function chainSocket(directory: string): Promise<string> {
  const hash = createHash('sha256').update(directory).digest('hex').slice(0, 32);
  if (process.platform === 'win32') return `\\\\.\\pipe\\speechgate-${hash}`;
  const path = join(directory, 'anvil.ipc');
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return path;
  return join(await ownFolder(join(tmpdir(), `speechgate-${hash}`)), 'anvil.ipc');
}

const cachePath = (directory: string) => join(directory, 'cache');
const pidFile = (directory: string) => join(directory, 'anvil.pid');

export async function findAnvil(directory: string): Promise<number | undefined> {
  const pid = Number(await readUnsharedFile(pidFile(directory)));
  return pid && (await isAnvil(pid, directory)) ? pid : undefined;
}

/** Only the anvil of this directory runs with its cache path. */
const isAnvil = async (pid: number, directory: string): Promise<boolean> =>
  (await commandLineOf(pid)).includes(`--cache-path ${cachePath(directory)} --`);

/**
 * Resolves with the process id once `isReady` returns true. Detached, anvil survives the Ctrl-C that shuts down the
 * gateway, which still needs the chain.
 * @throws with anvil's output if it exits first
 */
export async function launchAnvil(
  options: { binary: string; directory: string; stateFile: string | undefined; detached: boolean },
  isReady: () => Promise<boolean>,
): Promise<number> {
  const { binary, directory, stateFile, detached } = options;
  const socketPath = await chainSocket(directory);
  if (process.platform !== 'win32') await rm(socketPath, { force: true });
  const logFile = join(directory, 'anvil.log');
  const log = await openOwnLog(logFile);
  try {
    // On Windows a handle in append mode cannot truncate.
    await truncate(logFile);
    const state = stateFile ? ['--load-state', stateFile] : [];
    const own = [...(await httpArguments()), '--ipc', socketPath, '--cache-path', cachePath(directory), ...state];
    const child = spawn(binary, [...own, ...CHAIN_OPTIONS], {
      cwd: directory,
      env: { HOME: directory },
      stdio: ['ignore', log.fd, log.fd],
      detached,
      windowsHide: true,
    });
    child.unref();
    let ended = false;
    child.once('exit', () => {
      ended = true;
    });
    await replaceOwnFile(pidFile(directory), String(child.pid));
    while (!(await isReady())) {
      if (ended) {
        throw new Error(
          `The local chain did not start. Fix the cause, then retry. anvil wrote to ${logFile}: ${(await readFile(logFile, 'utf8')).trim()}`,
        );
      }
      await sleep(POLL_MS);
    }
    return child.pid as number;
  } finally {
    await log.close();
  }
}

/** Resolves when the process is gone. Save the state before. */
export async function killAnvil(pid: number, directory: string): Promise<void> {
  while (await isAnvil(pid, directory)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // Already exited.
    }
    await sleep(POLL_MS);
  }
}
