import { execFile, spawn } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openOwnLog } from '../../private-files.ts';
import { hasArgument } from '../postgres/process.ts';
import { hasCode } from '../postgres/system-error.ts';
import { CHAIN_ID } from './network.ts';

const POLL_MS = 10;
/** A block is finalized once two are on top of it: few blocks come here. */
const FINALITY = ['--slots-in-an-epoch', '1'];

/** The anvil of the npm package, which exists for Linux on x64 only; undefined when it is not installed. */
export function findBinary(): string | undefined {
  try {
    const manifest = createRequire(import.meta.url).resolve(
      `@foundry-rs/anvil-${process.platform}-${process.arch === 'x64' ? 'amd64' : process.arch}/package.json`,
    );
    return join(dirname(manifest), 'bin/anvil');
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

export interface AnvilProcess {
  readonly pid: number;
  readonly port: number;
}

/** Every anvil of this directory is started with this path, and no other one is: that is how it is found again. */
const cachePath = (directory: string) => join(directory, 'cache');

/** The anvil that runs on this directory, whoever started it; the arguments that Linux shows tell its port. */
export async function findAnvil(directory: string): Promise<AnvilProcess | undefined> {
  for (const entry of await readdir('/proc')) {
    const pid = Number(entry);
    if (!Number.isSafeInteger(pid)) continue;
    const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    const words = commandLine.split('\0');
    if (words.includes(cachePath(directory))) return { pid, port: Number(words[words.indexOf('--port') + 1]) };
  }
  return undefined;
}

/**
 * Starts anvil; detached, in a process group of its own, so that the Ctrl-C that ends the gateway does not end the chain
 * before the gateway has finished with it. Resolves when `isReady` says so; throws with what anvil printed when it has given
 * up. It mines a block for each transaction at once and no others.
 */
export async function launch(
  options: { binary: string; directory: string; port: number; stateFile: string | undefined; detached: boolean },
  isReady: (port: number) => Promise<boolean>,
): Promise<AnvilProcess> {
  const { binary, directory, port, stateFile, detached } = options;
  const logFile = join(directory, 'anvil.log');
  const log = await openOwnLog(logFile);
  try {
    await log.truncate();
    const network = ['--host', '127.0.0.1', '--port', String(port), '--no-cors'];
    const settings = [...network, '--chain-id', String(CHAIN_ID), ...FINALITY];
    const files = ['--cache-path', cachePath(directory), ...(stateFile ? ['--load-state', stateFile] : [])];
    const child = spawn(binary, [...settings, ...files, '--accounts', '0', '--quiet'], {
      cwd: directory,
      env: { HOME: directory },
      stdio: ['ignore', log.fd, log.fd],
      detached,
    });
    child.unref();
    let ended = false;
    child.once('exit', () => {
      ended = true;
    });
    for (;;) {
      if (ended) throw new Error(`The local chain did not start: ${(await readFile(logFile, 'utf8')).trim()}`);
      if (child.pid && (await isReady(port))) return { pid: child.pid, port };
      await sleep(POLL_MS);
    }
  } finally {
    await log.close();
  }
}

/** Ends the process and waits until it has gone; one that doesn't listen to the signal within that time is killed. */
export async function shutDown(directory: string, { pid }: AnvilProcess, timeoutMs: number): Promise<void> {
  const alive = () => hasArgument(pid, cachePath(directory));
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
