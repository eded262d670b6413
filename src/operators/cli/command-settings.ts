import { type Config, describeFaults, readConfig } from '../../config/config.ts';
import { type Database, openDatabase } from '../../db/database.ts';
import { faultOf, isDatabaseFault } from '../../db/database-errors.ts';
import { EXIT_USAGE, endWith } from '../../lib/arguments.ts';
import { printable } from '../../lib/printable.ts';
import { dataDir, readSandboxSettings } from '../../sandbox/sandbox-file.ts';

/** The environment. Without DATABASE_URL also the settings of the running sandbox, after a note on standard error. */
export async function commandSettings(): Promise<NodeJS.ProcessEnv> {
  if (process.env.DATABASE_URL?.trim()) return process.env;
  const sandbox = await readSandboxSettings(dataDir).catch((error) => endWith(error.message));
  if (!sandbox) {
    console.error(`No sandbox runs in ${dataDir}.`);
    return process.env;
  }
  console.error(`DATABASE_URL is not set. This uses the sandbox in ${dataDir}.`);
  return { ...process.env, ...sandbox };
}

export function databaseUrlOf(settings: NodeJS.ProcessEnv): string {
  const url = settings.DATABASE_URL?.trim();
  if (url) return url;
  endWith('DATABASE_URL is not set. Set it to postgres://user:password@host:5432/database.');
}

/** Exits if a setting is invalid. @param what the command's verb, for the error */
export function readWholeConfig(settings: NodeJS.ProcessEnv, what: string): Config {
  const read = readConfig(settings);
  if (read.outcome === 'read') return read.config;
  console.error(`speechgate can't ${what}:\n${describeFaults(read.faults)}`);
  process.exit(EXIT_USAGE);
}

interface Look {
  readonly settings?: NodeJS.ProcessEnv;
  /** Starts the error message, as in "The accounts can't be read". */
  readonly subject: string;
  readonly use?: 'read' | 'changed';
  readonly maxConnections?: number;
  readonly exitCode?: number;
}

/** Opens the database for one command. Prints a database error with a fix and without a stack. */
export async function withDatabase(
  { settings, subject, use = 'read', maxConnections = 1, exitCode = 1 }: Look,
  work: (db: Database) => Promise<void>,
): Promise<void> {
  const given = settings ?? (await commandSettings());
  const namedStatements = given.DATABASE_NAMED_STATEMENTS?.trim() !== 'off';
  const db = openDatabase(databaseUrlOf(given), { maxConnections, statementTimeoutMs: 0, namedStatements });
  try {
    await work(db);
  } catch (error) {
    if (!isDatabaseFault(error)) throw error;
    const wayOut = process.env.DATABASE_URL?.trim()
      ? 'Check DATABASE_URL, and run npm run migrate.'
      : 'Check that the sandbox runs.';
    console.error(`${subject} can't be ${use}: ${printable(String(faultOf(error as Error)))}. ${wayOut}`);
    process.exitCode = exitCode;
  } finally {
    await db.destroy();
  }
}
