import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Test } from 'tap';
import { PROJECT } from './project.ts';
import { until } from './until.ts';

export interface Child {
  readonly process: ChildProcess;
  /** What it has printed so far, standard output and error together. */
  output(): string;
  /** Waits until it has printed something that matches. */
  printed(pattern: RegExp, timeoutMs?: number): Promise<RegExpExecArray>;
  /** Waits for the end, of a whole group where it is one; tells the exit code, null after a signal. */
  ended(): Promise<number | null>;
  /** Sends the signal and waits for the end; tells the exit code, null after a kill. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** The command that runs a program as it was compiled: of `src/` to `dist/`, of `test/` and `lab/` to `build/`. */
export function programCommand(program: string, ...args: string[]): string[] {
  const compiled = program.replace(/ts$/, 'js');
  const path = compiled.startsWith('src/') ? compiled.replace(/^src/, 'dist') : join('build', compiled);
  return [process.execPath, join(PROJECT, path), ...args];
}

/** Runs a program of the project with nothing in its environment but what is given. */
export const startChild = (t: Owner, program: string, env: Record<string, string>, args: string[] = []): Child =>
  startCommand(t, programCommand(program, ...args), { env });

/** Runs a script, as the leader of a process group, with what it imports by name from modules of src/. */
export function startScript(t: Owner, imports: Readonly<Record<string, string>>, script: string): Child {
  const lines = Object.entries(imports).map(([name, path]) => {
    const module = pathToFileURL(join(PROJECT, path.replace(/^src/, 'dist').replace(/ts$/, 'js')));
    return `import { ${name} } from '${module}';`;
  });
  const command = [process.execPath, '--input-type=module', '--eval', [...lines, script].join('\n')];
  return startCommand(t, command, { isGroup: true });
}

/** Whose end is the end of what was started for it. */
export type Owner = Pick<Test, 'teardown'>;

export interface CommandOptions {
  readonly env?: Record<string, string>;
  /** The account to run as, as child_process wants it. */
  readonly identity?: { readonly uid?: number; readonly gid?: number };
  /** The project's folder, unless another one is given. */
  readonly cwd?: string;
  /** Whether what it starts is signalled with it, as by Ctrl-C in a terminal. */
  readonly isGroup?: boolean;
  /** How many characters of its output are kept, the last ones; all of them unless told otherwise. */
  readonly keptOutput?: number;
}

/** Likewise, any command. */
export function startCommand(
  t: Owner,
  [program = '', ...args]: readonly string[],
  { env = {}, cwd = PROJECT, isGroup = false, identity = {}, keptOutput = Number.MAX_SAFE_INTEGER }: CommandOptions,
): Child {
  const { PATH, HOME, XDG_STATE_HOME, NODE_OPTIONS } = process.env;
  const child = spawn(program, args, {
    cwd,
    env: {
      PATH,
      HOME,
      ...(XDG_STATE_HOME !== undefined && { XDG_STATE_HOME }),
      ...(NODE_OPTIONS !== undefined && { NODE_OPTIONS }),
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: isGroup,
    ...identity,
  });
  const send = (signal: NodeJS.Signals) => {
    if (isGroup) process.kill(-(child.pid as number), signal);
    else child.kill(signal);
  };
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => (output = (output + chunk).slice(-keptOutput)));
  }
  const ended = once(child, isGroup ? 'close' : 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  const running = () => child.exitCode === null && child.signalCode === null;
  t.teardown(async () => {
    if (running()) send('SIGKILL');
    await ended;
  });
  return {
    process: child,
    output: () => output,
    printed: async (pattern, timeoutMs) => {
      const missing = (what: string) => `${[program, ...args].join(' ')} ${what} ${pattern}:\n${output}`;
      await until(() => {
        if (!running() && !pattern.test(output)) throw new Error(missing('ended before it printed'));
        return pattern.test(output);
      }, timeoutMs).catch((error) => {
        throw error.code === 'ERR_ASSERTION' ? new Error(missing('has not printed')) : error;
      });
      return pattern.exec(output) as RegExpExecArray;
    },
    ended: async () => (await ended)[0],
    stop: async (signal = 'SIGTERM') => {
      send(signal);
      return (await ended)[0];
    },
  };
}
