import { EventEmitter } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { callerCommands } from '../../src/callers/cli/commands.ts';
import type { CommandRun } from './speechgate.ts';
import { until } from './until.ts';

/** A command that runs in the test's process, with an environment, streams and signals of its own. */
export interface RunningCommand {
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly ended: Promise<CommandRun>;
  /** What it has printed so far, standard output and error together. */
  output(): string;
  /** Waits until it has printed something that matches. */
  printed(pattern: RegExp): Promise<RegExpExecArray>;
  /** Sends the signal and waits for the end. */
  stop(signal: 'SIGINT' | 'SIGTERM'): Promise<CommandRun>;
}

/** Starts a command as `speechgate` does. @param input standard input, or all that it reads from there */
export function startCallerCommand(
  env: Readonly<Record<string, string>>,
  args: readonly string[],
  input: string | Readable = '',
): RunningCommand {
  const signals = new EventEmitter();
  const [out, err, both]: [Buffer[], Buffer[], Buffer[]] = [[], [], []];
  const collecting = (chunks: Buffer[]) =>
    new PassThrough().on('data', (chunk) => {
      chunks.push(chunk);
      both.push(chunk);
    });
  const { PATH = '', HOME = '' } = process.env;
  const host = Object.assign(signals, {
    env: { PATH, HOME, ...env },
    stdin: typeof input === 'string' ? Readable.from([input], { objectMode: false }) : input,
    stdout: collecting(out),
    stderr: collecting(err),
  });
  const output = () => `${Buffer.concat(both)}`;
  const run = async () => {
    const [name = '', ...words] = args[0] === 'feedback' ? [args.slice(0, 2).join(' '), ...args.slice(2)] : args;
    const command = await callerCommands[name]?.load();
    if (!command) throw new Error(`${name} is no command of callers.`);
    const code = await command(words, host);
    const bytes = Buffer.concat(out);
    return { code, bytes, out: `${bytes}`, err: `${Buffer.concat(err)}`, output: output() };
  };
  let hasEnded = false;
  const ended = run().finally(() => {
    hasEnded = true;
  });
  // Who awaits it later still gets the failure.
  ended.catch(() => {});
  return {
    ended,
    stdout: host.stdout,
    stderr: host.stderr,
    output,
    printed: async (pattern) => {
      await until(() => {
        if (hasEnded && !pattern.test(output())) throw new Error(`It ended before it printed ${pattern}: ${output()}`);
        return pattern.test(output());
      });
      return pattern.exec(output()) as RegExpExecArray;
    },
    stop: (signal) => {
      signals.emit(signal);
      return ended;
    },
  };
}

/** Runs a command with nothing in its environment but what is given, and nobody at a terminal. */
export const callerCommand = (env: Readonly<Record<string, string>>, ...args: string[]): Promise<CommandRun> =>
  startCallerCommand(env, args).ended;
