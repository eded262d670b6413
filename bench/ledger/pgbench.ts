import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Script } from './captured-sql.ts';

const run = promisify(execFile);

/** What pgbench says that it is; undefined where it is not installed. */
export async function pgbenchVersion(): Promise<string | undefined> {
  try {
    return (await run('pgbench', ['--version'])).stdout.trim();
  } catch {
    return undefined;
  }
}

/** Runs one of the scripts at random, again and again. Tells how often it did in a second. */
export async function pgbench(
  scripts: readonly Script[],
  { url, folder, concurrency, seconds }: { url: string; folder: string; concurrency: number; seconds: number },
): Promise<number> {
  const files: string[] = [];
  for (const [index, { text }] of scripts.entries()) {
    const file = join(folder, `pgbench-${index}.sql`);
    await writeFile(file, text);
    files.push('-f', file);
  }
  const variables = scripts.flatMap((script) =>
    Object.entries(script.variables).flatMap(([name, value]) => ['-D', `${name}=${value}`]),
  );
  const { stdout } = await run('pgbench', [
    ...['-n', '-M', 'prepared', '-c', String(concurrency), '-j', '2', '-T', String(seconds)],
    ...[...files, ...variables, url],
  ]);
  const failed = /number of failed transactions: (\d+)/.exec(stdout)?.[1];
  const rate = /^tps = ([\d.]+)/m.exec(stdout)?.[1];
  if (rate === undefined || (failed !== undefined && failed !== '0')) throw new Error(`pgbench has failed:\n${stdout}`);
  return Number(rate);
}
