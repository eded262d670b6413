import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { until } from './until.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

export interface Child {
  readonly process: ChildProcess;
  /** What it has printed so far, standard output and error together. */
  output(): string;
  /** Waits until it has printed something that matches. */
  printed(pattern: RegExp): Promise<RegExpExecArray>;
  /** Waits for the end; tells the exit code, null after a signal. */
  ended(): Promise<number | null>;
  /** Sends the signal and waits for the end; tells the exit code, null after a kill. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Runs a program of the project, such as src/main.ts, as npm would, with nothing in its environment but what is given. */
export function startChild(t: TestContext, program: string, env: Record<string, string>, args: string[] = []): Child {
  const child = spawn(process.execPath, ['--import', 'tsx', program, ...args], {
    cwd: PROJECT,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  const ended = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  const running = () => child.exitCode === null && child.signalCode === null;
  t.after(async () => {
    if (running()) child.kill('SIGKILL');
    await ended;
  });
  return {
    process: child,
    output: () => output,
    printed: async (pattern) => {
      await until(() => {
        if (!running() && !pattern.test(output))
          throw new Error(`${program} ended before it printed ${pattern}:\n${output}`);
        return pattern.test(output);
      });
      return pattern.exec(output) as RegExpExecArray;
    },
    ended: async () => (await ended)[0],
    stop: async (signal = 'SIGTERM') => {
      child.kill(signal);
      return (await ended)[0];
    },
  };
}
