import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

export interface NpmRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  /** Both together. */
  readonly output: string;
}

/** Runs a script of the project as its documents say, with nothing in its environment but what is given. */
export function npmRun(script: string, env: Record<string, string>, ...args: string[]): Promise<NpmRun> {
  const { PATH = '', HOME = '' } = process.env;
  return new Promise((resolve) => {
    execFile(
      'npm',
      ['run', '--silent', script, '--', ...args],
      { cwd: PROJECT, env: { PATH, HOME, ...env } },
      (error, out, err) => resolve({ code: error ? Number(error.code) : 0, out, err, output: out + err }),
    );
  });
}
