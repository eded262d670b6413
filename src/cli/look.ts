import { type Database, openDatabase } from '../db/database.ts';
import { faultOf, isDatabaseFault } from '../db/database-errors.ts';
import { databaseUrlOf } from './command-settings.ts';
import { printable } from './printable.ts';

export interface Look {
  readonly settings: NodeJS.ProcessEnv;
  /** What is read, as the beginning of the sentence that tells that it can't be. */
  readonly subject: string;
  /** What can't be done with it then. */
  readonly use?: 'read' | 'changed';
  readonly maxConnections?: number;
  /** When the database can't be read. */
  readonly exitCode?: number;
}

/** Works in the database for a command, for as long as that takes. A fault is printed with the way out, without a stack. */
export async function look(
  { settings, subject, use = 'read', maxConnections = 1, exitCode = 1 }: Look,
  work: (db: Database) => Promise<void>,
): Promise<void> {
  const namedStatements = settings.DATABASE_NAMED_STATEMENTS?.trim() !== 'off';
  const db = openDatabase(databaseUrlOf(settings), { maxConnections, statementTimeoutMs: 0, namedStatements });
  try {
    await work(db);
  } catch (error) {
    if (!isDatabaseFault(error)) throw error;
    const wayOut = process.env.DATABASE_URL?.trim()
      ? 'Is DATABASE_URL right, and npm run migrate done?'
      : 'Does the sandbox run?';
    console.error(`${subject} can't be ${use}: ${printable(String(faultOf(error as Error)))}. ${wayOut}`);
    process.exitCode = exitCode;
  } finally {
    await db.destroy();
  }
}
