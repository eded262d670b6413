import { execFile } from 'node:child_process';
import { programCommand } from './child.ts';
import { PROJECT } from './project.ts';

/** A finished run of a command. */
export interface CommandRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  /** Both together. */
  readonly output: string;
  /** Standard output as it was. */
  readonly bytes: Buffer;
}

/** Runs a command with nothing in its environment but what is given, and nobody at a terminal. */
export function speechgate(env: Record<string, string>, ...args: string[]): Promise<CommandRun> {
  const { PATH = '', HOME = '' } = process.env;
  const [node = '', ...program] = programCommand('src/speechgate.ts', ...args);
  return new Promise((resolve) => {
    const child = execFile(
      node,
      program,
      { cwd: PROJECT, env: { PATH, HOME, ...env }, encoding: 'buffer', maxBuffer: 1 << 26 },
      (error, bytes, stderr) => {
        const [out, err] = [bytes.toString(), stderr.toString()];
        resolve({ code: error ? Number(error.code) : 0, bytes, out, err, output: out + err });
      },
    );
    // A command that does not read it may have ended by then.
    child.stdin?.on('error', () => undefined).end();
  });
}
