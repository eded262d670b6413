import type { ParseArgsConfig, parseArgs } from 'node:util';
import { parseCommandLine } from '../arguments.ts';
import { UsageError } from '../usage-error.ts';
import { EXIT_HELP } from './exit-codes.ts';
import { failureOf } from './failure.ts';
import { assertVariables } from './known-names.ts';
import { Output } from './output.ts';

/** The options that every command of callers takes. */
export const COMMON_OPTIONS = {
  json: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
} as const;

type Options = NonNullable<ParseArgsConfig['options']> & typeof COMMON_OPTIONS;
type Parsed<T extends Options> = ReturnType<typeof parseArgs<{ options: T; allowPositionals: true }>>;

/** A command of callers. */
export interface Command<T extends Options> {
  /** How it is called, and what it does. */
  readonly usage: string;
  readonly example: string;
  readonly options: T;
  /** How many words may stand beside the options. */
  readonly maxWords: number;
  /** Does it, and prints its result. What it throws becomes one line, or one JSON document, and the exit code. */
  readonly run: (values: Parsed<T>['values'], words: readonly string[], output: Output) => Promise<void>;
}

/** Runs with what process.argv has after the command's name, and sets the exit code. */
export async function runCommand<const T extends Options>(command: Command<T>): Promise<void> {
  const args = process.argv.slice(2);
  const output = new Output(saysJson(args));
  try {
    const { values, positionals } = parse(args, command.options);
    if (values.help) return console.log(helpOf(command));
    const surplus = positionals[command.maxWords];
    if (surplus !== undefined) throw new UsageError(`${surplus} is one word too many. Put a text into quotes.`);
    assertVariables(process.env);
    await command.run(values as unknown as Parsed<T>['values'], positionals, output);
  } catch (error) {
    const failure = failureOf(error);
    output.failed(failure);
    process.exitCode = failure.exit;
  }
}

function parse(args: string[], options: Options) {
  try {
    return parseCommandLine({ args, options, allowPositionals: true });
  } catch (error) {
    throw error instanceof UsageError ? new UsageError(`${error.message} --help lists what is taken.`) : error;
  }
}

/** Also where the rest can't be read. */
function saysJson(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? args.length : end).includes('--json');
}

const helpOf = ({ usage, example }: Pick<Command<Options>, 'usage' | 'example'>): string => `${usage}
  --json           one JSON document on standard output; an error as JSON on standard error
  --help           this

Example:
  ${example}

${EXIT_HELP}`;
