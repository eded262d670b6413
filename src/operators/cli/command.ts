import { type Arguments, EXIT_USAGE, type Options, parseCommandLine, type Syntax } from '../../lib/arguments.ts';
import { UsageError } from '../../lib/usage-error.ts';

/** What a command needs of its process. */
export interface CommandContext {
  readonly env: NodeJS.ProcessEnv;
  readonly console: Pick<Console, 'log' | 'error'>;
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
}

/** Runs a command with the arguments after its name. Returns the exit code. */
export type OperatorCommand = (args: readonly string[], context: CommandContext) => Promise<number>;

interface Definition<T extends Options> extends Syntax<T> {
  readonly usage: string;
  readonly run: (values: Arguments<T>['values'], words: readonly string[], context: CommandContext) => Promise<number>;
}

/** Ends a command with a message and an exit code other than that of a UsageError. */
export class ExitError extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode: number) {
    super(message);
    this.exitCode = exitCode;
  }
}

export function defineCommand<const T extends Options>({ usage, run, ...syntax }: Definition<T>): OperatorCommand {
  return async (args, context) => {
    try {
      const { values, words, isHelp } = parseCommandLine(syntax, args);
      if (!isHelp) return await run(values, words, context);
      context.console.log(usage);
      return 0;
    } catch (error) {
      if (!(error instanceof UsageError || error instanceof ExitError)) throw error;
      context.console.error(error.message);
      return error instanceof ExitError ? error.exitCode : EXIT_USAGE;
    }
  };
}

export const printLines = ({ console }: CommandContext, lines: readonly string[]): void => {
  for (const line of lines) console.log(line);
};
