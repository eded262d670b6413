import { type Database, openDatabase } from '../../db/database.ts';
import { faultOf, isDatabaseFault } from '../../db/database-errors.ts';
import { printable } from '../../lib/printable.ts';
import { UsageError } from '../../lib/usage-error.ts';
import { type CommandContext, ExitError } from './command.ts';

/** The environment. Without DATABASE_URL also the settings of the running sandbox, after a note on standard error. */
export async function commandSettings({ env, console }: CommandContext): Promise<NodeJS.ProcessEnv> {
  if (env.DATABASE_URL?.trim()) return env;
  const { dataDirOf, readSandboxSettings } = await import('../../sandbox/sandbox-file.ts');
  const dataDir = dataDirOf(env);
  const sandbox = await readSandboxSettings(dataDir).catch((error) => {
    throw new UsageError(error.message);
  });
  if (!sandbox) {
    console.error(`No sandbox runs in ${dataDir}.`);
    return env;
  }
  console.error(`DATABASE_URL is not set. This uses the sandbox in ${dataDir}.`);
  return { ...env, ...sandbox };
}

export function databaseUrlOf(settings: NodeJS.ProcessEnv): string {
  const url = settings.DATABASE_URL?.trim();
  if (url) return url;
  throw new UsageError('DATABASE_URL is not set. Set it to postgres://user:password@host:5432/database.');
}

interface Look {
  readonly settings?: NodeJS.ProcessEnv;
  /** Starts the error message, as in "The accounts can't be read". */
  readonly subject: string;
  readonly use?: 'read' | 'changed';
  readonly maxConnections?: number;
}

/** The database did not answer, so nothing is known to be broken. */
export const EXIT_UNANSWERED = 2;

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
  const wayOut = env.DATABASE_URL?.trim()
    ? 'Check DATABASE_URL, and run npm run migrate.'
    : 'Check that the sandbox runs.';
  return new ExitError(`${what}: ${printable(String(faultOf(error as Error)))}. ${wayOut}`, EXIT_UNANSWERED);
}
