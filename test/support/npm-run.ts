import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { programCommand } from './child.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const SCRIPTS: Readonly<Record<string, string>> = JSON.parse(readFileSync(`${PROJECT}/package.json`, 'utf8')).scripts;

export interface NpmRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  /** Both together. */
  readonly output: string;
}

/** Runs a script of package.json that is a program, without npm, with nothing in its environment but what is given. */
export function npmRun(script: string, env: Record<string, string>, ...args: string[]): Promise<NpmRun> {
  const [, command] = /^node (?:--import tsx )?(\S.*)$/.exec(SCRIPTS[script] ?? '') ?? [];
  if (command === undefined) throw new Error(`package.json has no program named ${script}`);
  const [program = '', ...before] = command.split(' ');
  return runProgram(program, env, ...before, ...args);
}

/** Runs a program of the project to its end, with nothing in its environment but what is given, and nobody at a terminal. */
function runProgram(program: string, env: Record<string, string>, ...args: string[]): Promise<NpmRun> {
  const { PATH = '', HOME = '' } = process.env;
  const [node = '', ...parameters] = programCommand(program, ...args);
  return new Promise((resolve) => {
    const child = execFile(node, parameters, { cwd: PROJECT, env: { PATH, HOME, ...env } }, (error, out, err) =>
      resolve({ code: error ? Number(error.code) : 0, out, err, output: out + err }),
    );
    child.stdin?.end();
  });
}
