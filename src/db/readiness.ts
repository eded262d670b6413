import { sql } from 'kysely';
import { within } from '../lib/within.ts';
import { readRoleRights } from './application-role.ts';
import type { Database } from './database.ts';
import {
  connectionFix,
  faultOf,
  isRefused,
  poolerFix,
  READ_ONLY_FIX,
  RIGHTS_FIX,
  rightsFix,
} from './database-errors.ts';
import { pendingMigrations } from './migrate.ts';

export type Readiness =
  | { readonly outcome: 'ready' }
  | { readonly outcome: 'unmigrated'; readonly pending: readonly string[] }
  /** The role lacks rights. */
  | { readonly outcome: 'denied'; readonly cause: string; readonly fix: string }
  /** By its settings, such as a wrong password, or by those of a pooler. */
  | { readonly outcome: 'refused'; readonly cause: string; readonly fix: string }
  | { readonly outcome: 'unavailable'; readonly cause: string; readonly fix: string };

const START_FIX = 'Check that the database runs and is not overloaded, and that DATABASE_URL is right.';

/** Whether the service can use the database now. Never throws. */
export async function readReadiness(
  db: Database,
  timeoutMs: number,
  name: (db: Database) => Promise<unknown> = nameStatement,
): Promise<Readiness> {
  let found: Readiness = { outcome: 'unavailable', cause: `no answer within ${timeoutMs / 1000} s`, fix: START_FIX };
  await within(
    timeoutMs,
    ask(db, name).then((answer) => {
      found = answer;
    }),
  );
  return found;
}

/** Two connections use one named statement in turn. A pooler that shares sessions then always fails. */
export const nameStatementTwice = (db: Database): Promise<unknown> =>
  db.connection().execute(async (held) => {
    await nameStatement(held);
    await nameStatement(db);
  });

/** Statements with parameters have names. */
const nameStatement = (db: Database): Promise<unknown> => sql`/* readiness */ select ${1}::int`.execute(db);

async function isReadOnly(db: Database): Promise<boolean> {
  const { rows } = await sql<{ value: string }>`select current_setting('transaction_read_only') as value`.execute(db);
  return rows[0]?.value === 'on';
}

async function ask(db: Database, name: (db: Database) => Promise<unknown>): Promise<Readiness> {
  try {
    await name(db);
    if (await isReadOnly(db)) return { outcome: 'unavailable', cause: 'it is read-only', fix: READ_ONLY_FIX };
    const pending = await pendingMigrations(db);
    if (pending.length > 0) return { outcome: 'unmigrated', pending };
    const { missing } = await readRoleRights(db);
    if (missing.length === 0) return { outcome: 'ready' };
    return { outcome: 'denied', cause: `the role can't ${missing.join(', ')}`, fix: RIGHTS_FIX };
  } catch (error) {
    const cause = error instanceof Error ? faultOf(error) : undefined;
    const fix = error instanceof Error ? connectionFix(error) : START_FIX;
    const told = { cause: cause ?? 'an unknown error' };
    const rights = rightsFix(error);
    if (rights !== undefined) return { outcome: 'denied', ...told, fix: rights };
    return { outcome: isRefused(error) || poolerFix(error) ? 'refused' : 'unavailable', ...told, fix };
  }
}
