import { type Options as AnyOptions, type Arguments, JSON_OPTION, parseCommandLine } from '../../lib/arguments.ts';
import type { CommandProcess } from './command-process.ts';
import { EXIT_HELP, type ExitCode, failureOf } from './failure.ts';
import { assertVariables } from './known-names.ts';
import { Output } from './output.ts';

export const COMMON_OPTIONS = JSON_OPTION;

type Options = AnyOptions & typeof COMMON_OPTIONS;

interface Definition<T extends Options> {
  readonly usage: string;
  readonly example: string;
  readonly options: T;
  readonly maxWords: number;
  readonly run: (
    values: Arguments<T>['values'],
    words: readonly string[],
    output: Output,
    host: CommandProcess,
  ) => Promise<void>;
}

/** Runs with these arguments and returns the exit code. */
export type Command = (args: readonly string[], host: CommandProcess) => Promise<ExitCode>;

export function defineCommand<const T extends Options>(definition: Definition<T>): Command {
  return async (args, host) => {
    const end = args.indexOf('--');
    // Works even if the other arguments are invalid.
    const output = new Output(args.slice(0, end < 0 ? args.length : end).includes('--json'), host);
    try {
      const { values, words, isHelp } = parseCommandLine(definition, args);
      if (isHelp) output.print(helpOf(definition));
      else {
        assertVariables(host.env);
        await definition.run(values, words, output, host);
      }
    } catch (error) {
      output.failed(failureOf(error));
    }
    return output.exitCode;
  };
}

/** Runs a command as this process. */
export async function runCommand(command: Command): Promise<void> {
  process.exitCode = await command(process.argv.slice(2), process);
}

const helpOf = ({ usage, example }: { readonly usage: string; readonly example: string }): string => `${usage}
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
