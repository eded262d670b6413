import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, rm, truncate } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openOwnLog, ownFolder } from '../../lib/private-files.ts';
import { isFree } from '../free-port.ts';
import { hasCode } from '../postgres/system-error.ts';
import { hasArgument, listProcesses, maySignal } from '../processes.ts';
import { CHAIN_ID } from './chain-client.ts';

const POLL_MS = 10;
/** A block is finalized once two are on top of it: few blocks come here. */
const FINALITY = ['--slots-in-an-epoch', '1'];
/** Of so many blocks the state can be asked for. anvil would write thousands to the disk, each with all accounts. */
const HISTORY = ['--prune-history', '128'];
/** What every local chain is, wherever it runs. */
export const CHAIN_OPTIONS = [
  ...['--no-cors', '--chain-id', String(CHAIN_ID)],
  ...[...FINALITY, ...HISTORY, '--accounts', '0', '--quiet'],
];

/** Where the npm package of a platform has anvil. There are packages for Linux, macOS and Windows. */
export function packagedBinary(platform: NodeJS.Platform, arch: NodeJS.Architecture): string {
  const machine = arch === 'x64' ? 'amd64' : arch;
  return `@foundry-rs/anvil-${platform}-${machine}/bin/${platform === 'win32' ? 'anvil.exe' : 'anvil'}`;
}

/** The anvil that npm has installed for this platform; undefined when it has not. */
export function findBinary(): string | undefined {
  try {
    return createRequire(import.meta.url).resolve(packagedBinary(process.platform, process.arch));
  } catch {
    return undefined;
  }
}

/** Why this system can't run the program, for instance for want of the C library it was built for; undefined if it can. */
export async function whyUnrunnable(binary: string): Promise<string | undefined> {
  try {
    await promisify(execFile)(binary, ['--version'], { env: {} });
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message.trim() : String(error);
  }
}

/** A multicast address: Linux lets a program listen there, and nobody connect. */
const UNREACHABLE_HOST = '224.0.0.1';
/** Ports that no browser connects to (https://fetch.spec.whatwg.org/#port-blocking). */
const BLOCKED_PORTS = [6000, 6665, 6666, 6667, 6668, 6669, 6697, 10080, 5060, 5061, 6566, 4045, 4190, 3659];

/**
 * Where anvil listens besides its socket, for it can't be told not to: where no web page gets, which could control the
 * chain by WebSocket there.
 */
export async function httpArguments(platform: NodeJS.Platform = process.platform): Promise<string[]> {
  if (platform === 'linux') return ['--host', UNREACHABLE_HOST, '--port', '0'];
  for (const port of BLOCKED_PORTS) {
    if (await isFree(port)) return ['--host', '127.0.0.1', '--port', String(port)];
  }
  throw new Error(`The local chain needs one of the ports ${BLOCKED_PORTS.join(', ')}: free one.`);
}

/** The longest path of a Unix socket that every platform takes. */
const MAX_SOCKET_PATH_BYTES = 103;

/** The socket of the anvil of this directory: in it, or in a private folder for temporary files where its path is too long. */
export async function chainSocket(directory: string): Promise<string> {
  const hash = createHash('sha256').update(directory).digest('hex').slice(0, 32);
  if (process.platform === 'win32') return `\\\\.\\pipe\\speechgate-${hash}`;
  const path = join(directory, 'anvil.ipc');
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return path;
  return join(await ownFolder(join(tmpdir(), `speechgate-${hash}`)), 'anvil.ipc');
}

export interface AnvilProcess {
  readonly pid: number;
}

const cachePath = (directory: string) => join(directory, 'cache');
/** Every anvil of this directory is started with this, and no other one is: that is how it is found again. */
const ownArguments = (directory: string) => ` --cache-path ${cachePath(directory)} --`;

/** The anvil that runs on this directory, whichever process of this user has started it. */
export async function findAnvil(directory: string): Promise<AnvilProcess | undefined> {
  const found = (await listProcesses()).find(
    ({ pid, commandLine }) => commandLine.includes(ownArguments(directory)) && maySignal(pid),
  );
  return found && { pid: found.pid };
}

/**
 * Starts anvil; detached, in a process group of its own, so that the Ctrl-C that ends the gateway does not end the chain
 * before the gateway has finished with it. Resolves when `isReady` says so; throws with what anvil printed when it has given
 * up. It mines a block for each transaction at once and no others.
 */
export async function launch(
  options: { binary: string; directory: string; stateFile: string | undefined; detached: boolean },
  isReady: (socketPath: string) => Promise<boolean>,
): Promise<AnvilProcess> {
  const { binary, directory, stateFile, detached } = options;
  const socketPath = await chainSocket(directory);
  if (process.platform !== 'win32') await rm(socketPath, { force: true });
  const logFile = join(directory, 'anvil.log');
  const log = await openOwnLog(logFile);
  try {
    // Windows lets no handle that appends do this.
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
    for (;;) {
      if (ended) throw new Error(`The local chain did not start: ${(await readFile(logFile, 'utf8')).trim()}`);
      if (child.pid && (await isReady(socketPath))) return { pid: child.pid };
      await sleep(POLL_MS);
    }
  } finally {
    await log.close();
  }
}

/** Ends the process and waits until it has gone; one that doesn't listen to the signal within that time is killed. */
export async function shutDown(directory: string, { pid }: AnvilProcess, timeoutMs: number): Promise<void> {
  const alive = () => hasArgument(pid, ownArguments(directory));
  const deadline = performance.now() + timeoutMs;
  if (await alive()) send(pid, 'SIGTERM');
  while (await alive()) {
    if (performance.now() > deadline) send(pid, 'SIGKILL');
    await sleep(POLL_MS);
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    // It has just ended by itself.
    if (!hasCode(error, 'ESRCH')) throw error;
  }
}
