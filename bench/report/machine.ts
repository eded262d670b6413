import { execFile } from 'node:child_process';
import { arch, cpus, loadavg, platform, release, totalmem } from 'node:os';
import { promisify } from 'node:util';
import { sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';
import { PROJECT } from '../targets/program.ts';

/** Where and on what a run was measured. */
export interface Machine {
  readonly startedAt: string;
  /** Of the checkout; with a plus sign where files have changed since. */
  readonly commit: string;
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly system: string;
  readonly node: string;
  readonly postgres: string;
  /** Of the minute before the run: more than a few tenths mean that other work was measured too. */
  readonly loadBefore: number;
}

/** To be asked before the run has made load of its own. */
export function lookAtMachine(): Omit<Machine, 'postgres' | 'commit'> {
  const [processor] = cpus();
  return {
    startedAt: new Date().toISOString().slice(0, 19),
    cpu: processor?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    system: `${platform()} ${release()} ${arch()}`,
    node: process.version,
    loadBefore: loadavg()[0] ?? 0,
  };
}

export async function versionOf(db: Database): Promise<string> {
  const { rows } = await sql<{ server_version: string }>`show server_version`.execute(db);
  return rows[0]?.server_version ?? 'unknown';
}

/** "unknown" outside of a checkout. */
export async function commitOfCheckout(): Promise<string> {
  const git = async (...args: string[]) => (await promisify(execFile)('git', args, { cwd: PROJECT })).stdout.trim();
  try {
    const commit = await git('rev-parse', '--short', 'HEAD');
    return (await git('status', '--porcelain', '--untracked-files=no')) ? `${commit}+` : commit;
  } catch {
    return 'unknown';
  }
}
