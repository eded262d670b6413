import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { NpmRun } from './npm-run.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

/** Runs an operators' command with nothing in its environment but what is given, and nobody at a terminal. */
export function speechgate(env: Record<string, string>, ...args: string[]): Promise<NpmRun> {
  const { PATH = '', HOME = '' } = process.env;
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      ['bin/speechgate.js', ...args],
      { cwd: PROJECT, env: { PATH, HOME, ...env } },
      (error, out, err) => resolve({ code: error ? Number(error.code) : 0, out, err, output: out + err }),
    );
    child.stdin?.end();
  });
}
