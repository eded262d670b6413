import type { Writable } from 'node:stream';
import type { Config } from '../../config/config.ts';
import { SettingsReader } from '../../config/settings-reader.ts';
import { type Database, openDatabase } from '../../db/database.ts';
import { connectionFix, faultOf, isDatabaseFault, isNotSetUp, isRefused, rightsFix } from '../../db/database-errors.ts';
import {
  type Arguments,
  EXIT_CONFIG,
  EXIT_USAGE,
  type Options,
  parseCommandLine,
  type Syntax,
  UsageError,
  usageLine,
} from '../../lib/arguments.ts';
import { printable } from '../../lib/printable.ts';

/** What a command needs of its process. */
export interface CommandContext {
  readonly env: NodeJS.ProcessEnv;
  readonly console: Pick<Console, 'log' | 'error'>;
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: Writable;
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
}

/** Runs a command with the arguments after its name. Returns the exit code. */
export type OperatorCommand = (args: readonly string[], context: CommandContext) => Promise<number>;

interface Definition<T extends Options> extends Syntax<T> {
  readonly usage: string;
  readonly run: (values: Arguments<T>['values'], words: readonly string[], context: CommandContext) => Promise<number>;
}

/** The command found a fault or nothing, or was refused. */
export const EXIT_FAILED = 1;
/** The database, processor or chain did not answer, so nothing is known to be broken: EX_UNAVAILABLE of sysexits(3). */
export const EXIT_UNANSWERED = 69;

/** Ends a command with a message and an exit code other than that of a UsageError. */
export class ExitError extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode = EXIT_FAILED) {
    super(message);
    this.exitCode = exitCode;
  }
}

export const invalidSettings = (message: string): ExitError => new ExitError(message, EXIT_CONFIG);

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
      if (error instanceof ExitError) return error.exitCode;
      context.console.error(usageLine(usage));
      return EXIT_USAGE;
    }
  };
}

export const printLines = ({ console }: CommandContext, lines: readonly string[]): void => {
  for (const line of lines) console.log(line);
};

/** The environment. Without DATABASE_URL also the settings of the running sandbox, after a note on standard error. */
export async function commandSettings({ env, console }: CommandContext): Promise<NodeJS.ProcessEnv> {
  if (env.DATABASE_URL?.trim() || env.DATABASE_URL_FILE?.trim()) return env;
  const { dataDirOf, readSandboxSettings } = await import('../../sandbox/sandbox-file.ts');
  const dataDir = dataDirOf(env);
  const sandbox = await readSandboxSettings(dataDir).catch((error) => {
    throw invalidSettings(error.message);
  });
  if (!sandbox) {
    console.error(`No sandbox runs in ${dataDir}. If one did, this command would use its database.`);
    return env;
  }
  console.error(`DATABASE_URL is not set. This uses the sandbox in ${dataDir}.`);
  return { ...env, ...sandbox };
}

export function databaseUrlOf(settings: NodeJS.ProcessEnv): string {
  const reader = new SettingsReader(settings);
  const url = reader.text('DATABASE_URL');
  if (url) return url;
  const [fault] = reader.faults;
  if (fault) throw invalidSettings(`${fault.name} ${fault.problem}. ${fault.fix}`);
  throw invalidSettings('DATABASE_URL is not set. Set it to postgres://user:password@host:5432/database.');
}

/** @param what the command's verb, for the error @throws ExitError if a setting is invalid */
export async function readWholeConfig(settings: NodeJS.ProcessEnv, what: string): Promise<Config> {
  const { describeFaults, readConfig } = await import('../../config/config.ts');
  const read = readConfig(settings);
  if (read.outcome === 'read') return read.config;
  throw invalidSettings(`speechgate can't ${what}:\n${describeFaults(read.faults)}`);
}

interface Look {
  readonly settings?: NodeJS.ProcessEnv;
  /** Starts the error message, as in "The accounts can't be read". */
  readonly subject: string;
  readonly use?: 'read' | 'changed';
  readonly maxConnections?: number;
}

/** Opens the database for one command. @throws ExitError with a fix and without a stack for a database error */
export async function withDatabase(
  context: CommandContext,
  { settings, subject, use = 'read', maxConnections = 1 }: Look,
  work: (db: Database) => Promise<number>,
): Promise<number> {
  const given = settings ?? (await commandSettings(context));
  const namedStatements = given.DATABASE_NAMED_STATEMENTS?.trim() !== 'off';
  const db = openDatabase(databaseUrlOf(given), { maxConnections, statementTimeoutMs: 0, namedStatements });
  try {
    return await work(db);
  } catch (error) {
    throw databaseFailure(context, `${subject} can't be ${use}`, error);
  } finally {
    await db.destroy();
  }
}

/** The error of a command that the database failed: one line with the fix. Returns any other error as it is. */
export function databaseFailure({ env }: CommandContext, what: string, error: unknown): unknown {
  if (!isDatabaseFault(error)) return error;
  const isSandbox = !(env.DATABASE_URL?.trim() || env.DATABASE_URL_FILE?.trim());
  const fix =
    isNotSetUp(error) && !isRefused(error)
      ? (rightsFix(error) ?? 'Run npm run migrate.')
      : connectionFix(error as Error);
  const wayOut = isSandbox ? 'Check that the sandbox still runs.' : fix;
  return new ExitError(`${what}: ${printable(String(faultOf(error as Error)))}. ${wayOut}`, EXIT_UNANSWERED);
}
