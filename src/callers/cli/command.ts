import { type Options as AnyOptions, type Arguments, JSON_OPTION, parseCommandLine } from '../../lib/arguments.ts';
import { EXIT_HELP, failureOf } from './failure.ts';
import { assertVariables } from './known-names.ts';
import { Output } from './output.ts';

export const COMMON_OPTIONS = JSON_OPTION;

type Options = AnyOptions & typeof COMMON_OPTIONS;

interface Command<T extends Options> {
  readonly usage: string;
  readonly example: string;
  readonly options: T;
  readonly maxWords: number;
  readonly run: (values: Arguments<T>['values'], words: readonly string[], output: Output) => Promise<void>;
}

export async function runCommand<const T extends Options>(command: Command<T>): Promise<void> {
  const args = process.argv.slice(2);
  const end = args.indexOf('--');
  // Works even if the other arguments are invalid.
  const output = new Output(args.slice(0, end < 0 ? args.length : end).includes('--json'));
  try {
    const { values, words, isHelp } = parseCommandLine(command, args);
    if (isHelp) return console.log(helpOf(command));
    assertVariables(process.env);
    await command.run(values, words, output);
  } catch (error) {
    const failure = failureOf(error);
    output.failed(failure);
    process.exitCode = failure.exit;
  }
}

const helpOf = ({ usage, example }: { readonly usage: string; readonly example: string }): string => `${usage}
  --json           prints one JSON document to standard output; an error as JSON to standard error
  --help           prints this help

Example:
  ${example}

${EXIT_HELP}`;

/** Aborts at the first Ctrl-C or SIGTERM; the second one ends the process at once. */
export function interruption(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => controller.abort(new Error(name)));
  return controller.signal;
}
