import { execFile, execFileSync } from 'node:child_process';
import { arch, cpus, loadavg, platform, release, totalmem } from 'node:os';
import { promisify } from 'node:util';
import { sql } from 'kysely';
import type { Database } from '../../../src/db/database.ts';
import { PROJECT } from '../targets/program.ts';

export interface Machine {
  readonly startedAt: string;
  /** With a plus sign if files have changed since. */
  readonly commit: string;
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly system: string;
  readonly node: string;
  readonly postgres: string;
  /** Load average of the last minute. More than a few tenths mean that other work disturbed the run. */
  readonly loadBefore: number;
}

/** Call this before the run makes its own load. @param node the binary that is measured */
export function lookAtMachine(node = process.execPath): Omit<Machine, 'postgres' | 'commit'> {
  const [processor] = cpus();
  return {
    startedAt: new Date().toISOString().slice(0, 19),
    cpu: processor?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    system: `${platform()} ${release()} ${arch()}`,
    node: execFileSync(node, ['--version'], { encoding: 'utf8' }).trim(),
    loadBefore: loadavg()[0] ?? 0,
  };
}

export async function versionOf(db: Database): Promise<string> {
  const { rows } = await sql<{ server_version: string }>`show server_version`.execute(db);
  return rows[0]?.server_version ?? 'unknown';
}

/** "unknown" outside a checkout. */
export async function commitOfCheckout(): Promise<string> {
  const git = async (...args: string[]) => (await promisify(execFile)('git', args, { cwd: PROJECT })).stdout.trim();
  try {
    const commit = await git('rev-parse', '--short', 'HEAD');
    return (await git('status', '--porcelain', '--untracked-files=no')) ? `${commit}+` : commit;
  } catch {
    return 'unknown';
  }
}
