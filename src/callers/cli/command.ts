import {
  type Arguments,
  JSON_OPTION,
  type Options,
  parseCommandLine,
  UsageError,
  usageLine,
} from '../../lib/arguments.ts';
import { EXIT_HELP, type ExitCode, failureOf } from './failure.ts';
import { type CommandProcess, Output } from './output.ts';
import { assertVariables } from './stored-settings.ts';

interface Definition<T extends Options> {
  readonly usage: string;
  readonly example: string;
  /** Besides --json and --help, which every command has. */
  readonly options?: T;
  /** Default: 0. */
  readonly maxWords?: number;
  readonly run: (values: Arguments<T & typeof JSON_OPTION>['values'], call: Call) => Promise<void>;
}

interface Call {
  readonly words: readonly string[];
  readonly output: Output;
  readonly host: CommandProcess;
}

/** Runs with these arguments and returns the exit code. */
export type Command = (args: readonly string[], host: CommandProcess) => Promise<ExitCode>;

export function defineCommand<const T extends Options>(definition: Definition<T>): Command {
  const { usage, example, options, maxWords = 0, run } = definition;
  return async (args, host) => {
    const end = args.indexOf('--');
    // Works even if the other arguments are invalid.
    const output = new Output(args.slice(0, end < 0 ? args.length : end).includes('--json'), host);
    try {
      const syntax = { options: { ...(options as T), ...JSON_OPTION }, maxWords };
      const { values, words, isHelp } = parseCommandLine(syntax, args);
      if (isHelp) output.print(helpOf(usage, example));
      else {
        assertVariables(host.env);
        await run(values, { words, output, host });
      }
    } catch (error) {
      output.failed(failureOf(error));
      if (error instanceof UsageError) output.note(usageLine(usage));
    }
    return output.exitCode;
  };
}

/** Runs a command as this process. */
export async function runCommand(command: Command): Promise<void> {
  process.exitCode = await command(process.argv.slice(2), process);
}

const helpOf = (usage: string, example: string): string => `${usage}
  --json           prints one JSON document to standard output; an error as JSON to standard error
  --help           prints this help

Example:
  ${example}

${EXIT_HELP}`;

/** Aborts at the first Ctrl-C or SIGTERM; the second one ends the process at once. */
export function interruption(host: CommandProcess): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) host.once(name, () => controller.abort(new Error(name)));
  return controller.signal;
}
