import { type ParseArgsConfig, parseArgs } from 'node:util';
import { nearest } from './misspelt.ts';
import { parseUsd } from './money.ts';

/** A wrong command line. The message is one line that names the option and the fix. The command's usage follows it. */
export class UsageError extends Error {}

/** For wrong arguments. */
export const EXIT_USAGE = 2;
/** EX_CONFIG of sysexits(3): unusable settings (R47). */
export const EXIT_CONFIG = 78;

export const JSON_OPTION = { json: { type: 'boolean', default: false } } as const;
const HELP_OPTION = { help: { type: 'boolean', short: 'h', default: false } } as const;

export type Options = NonNullable<ParseArgsConfig['options']>;

export interface Syntax<T extends Options> {
  readonly options?: T;
  readonly words?: readonly string[];
  readonly maxWords?: number;
}

export interface Arguments<T extends Options> {
  readonly values: ReturnType<typeof parseArgs<{ options: T }>>['values'];
  readonly words: readonly string[];
  readonly isHelp: boolean;
}

/** Reads a command line. @throws UsageError for anything that the command does not accept */
export function parseCommandLine<const T extends Options>(
  { options, words = [], maxWords = words.length }: Syntax<T>,
  args: readonly string[],
): Arguments<T> {
  const { values, positionals } = parse(args, { ...options, ...HELP_OPTION });
  const isHelp = values.help === true;
  if (!isHelp) {
    const surplus = positionals[maxWords];
    if (surplus !== undefined) throw new UsageError(`Unexpected argument ${surplus}. Put text with spaces in quotes.`);
    const missing = words[positionals.length];
    if (missing !== undefined) throw new UsageError(`${missing} is missing. --help lists the options.`);
  }
  return { values: values as Arguments<T>['values'], words: positionals, isHelp };
}

/** Parses US dollars such as 0.01 or $5 to micro-USD. @param name the argument or variable, for the error */
export function readUsd(text: string, name: string): bigint {
  const microUsd = parseUsd(text.trim().replace(/^\$/, ''));
  if (microUsd !== undefined) return microUsd;
  throw new UsageError(`${name} must be US dollars with at most six decimals, such as 0.01, not ${text}.`);
}

function parse(args: readonly string[], options: Options) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (error) {
    const [fault = ''] = (error as Error).message.split(/\. |\n/);
    const [, unknown = ''] = /^Unknown option '--([^']+)'/.exec(fault) ?? [];
    const meant = nearest(unknown, Object.keys(options));
    const hint = meant === undefined ? '--help lists the options.' : `Did you mean --${meant}?`;
    throw new UsageError(`${fault.replace(/\.$/, '')}. ${hint}`);
  }
}

/** Follows the error about a wrong command line. */
export const usageLine = (usage: string): string => `Usage: ${usage.split('\n', 1)[0]}`;

/** Reads the arguments of the process. --help and invalid arguments end it. */
export function readArguments<const T extends Options>(
  { usage, ...syntax }: Syntax<T> & { readonly usage: string },
  args: readonly string[] = process.argv.slice(2),
): Arguments<T> {
  const read = orEnd(() => parseCommandLine(syntax, args), usage);
  if (!read.isHelp) return read;
  console.log(usage);
  process.exit();
}

function orEnd<T>(read: () => T, usage: string): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return endWith(`${error.message}\n${usageLine(usage)}`);
  }
}

export function endWith(message: string): never {
  console.error(message);
  process.exit(EXIT_USAGE);
}
