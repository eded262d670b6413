import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { hasCode } from './postgres/system-error.ts';

/** Of a long list with long command lines. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

export interface SystemProcess {
  readonly pid: number;
  /** What it was started with, its words joined by spaces; empty where this user may not see it. */
  readonly commandLine: string;
}

/** Whether any process has this id, whoever owns it. */
export function processExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return hasCode(error, 'EPERM');
  }
}

/** Whether this user may end the process of this id: another user's can be made to look like any. */
export function maySignal(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** All processes of the system that this user can see. */
export async function listProcesses(platform = process.platform): Promise<SystemProcess[]> {
  if (platform === 'win32') return askPowerShell('');
  if (platform !== 'linux') return askPs('-A');
  const pids = (await readdir('/proc')).map(Number).filter(Number.isSafeInteger);
  const found = await Promise.all(pids.map((pid) => findProcess(pid, platform)));
  return found.filter((each) => each !== undefined);
}

/** The process of this id; undefined when there is none. */
export async function findProcess(pid: number, platform = process.platform): Promise<SystemProcess | undefined> {
  if (platform === 'win32') return (await askPowerShell(`-Filter 'ProcessId=${pid}'`))[0];
  if (platform !== 'linux') return (await askPs('-p', String(pid)))[0];
  // A system without ps, such as a small container, has this.
  const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return words ? { pid, commandLine: words.replace(/\0$/, '').replaceAll('\0', ' ') } : undefined;
}

/** Whether the process was started with this argument; false when there is no such process. */
export async function hasArgument(pid: number, argument: string): Promise<boolean> {
  return (await findProcess(pid))?.commandLine.includes(argument) ?? false;
}

/** It ends with 1 when it finds none. Without `ww` it cuts lines to the width of a terminal. */
async function askPs(...selection: string[]): Promise<SystemProcess[]> {
  const { stdout } = await run('ps', [...selection, '-ww', '-o', 'pid=,command=']).catch((error) => {
    if (error.code !== 1) throw error;
    return { stdout: '' };
  });
  return readLines(stdout);
}

async function askPowerShell(filter: string): Promise<SystemProcess[]> {
  const script =
    '[Console]::OutputEncoding = [Text.Encoding]::UTF8; ' +
    `Get-CimInstance Win32_Process ${filter} | ForEach-Object { "$($_.ProcessId) $($_.CommandLine)" }`;
  const { stdout } = await run('powershell.exe', ['-NoProfile', '-NonInteractive', '-Command', script]);
  return readLines(stdout.replaceAll('"', ''));
}

function run(program: string, words: string[]): Promise<{ stdout: string }> {
  return promisify(execFile)(program, words, { maxBuffer: MAX_OUTPUT_BYTES, windowsHide: true });
}

/** Of each line its first word, an id, and what follows. */
function readLines(text: string): SystemProcess[] {
  return [...text.matchAll(/^ *(\d+) (.*?) *\r?$/gm)].map(([, pid, commandLine = '']) => ({
    pid: Number(pid),
    commandLine,
  }));
}
