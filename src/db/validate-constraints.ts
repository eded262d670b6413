import { type Kysely, sql } from 'kysely';
import { lockBriefly, untilUnlocked } from './brief-locks.ts';

const CHECK_VIOLATION = '23514';

/**
 * Validates the constraints that migrations have added without reading the table, each in a transaction of its own that
 * lets everybody read and write meanwhile. Tells the names of those that older rows break: they hold for new rows only,
 * and the audit shows the rows.
 */
export async function validateConstraints<T>(db: Kysely<T>): Promise<string[]> {
  const broken: string[] = [];
  for (const { table, name } of await findNotValid(db)) {
    try {
      await untilUnlocked(() =>
        db.transaction().execute(async (transaction) => {
          await lockBriefly(transaction);
          await sql`alter table ${sql.raw(table)} validate constraint ${sql.ref(name)}`.execute(transaction);
        }),
      );
    } catch (error) {
      if ((error as { code?: unknown }).code !== CHECK_VIOLATION) throw error;
      broken.push(name);
    }
  }
  return broken;
}

/** The constraints that hold for new rows only. */
export async function findNotValid<T>(db: Kysely<T>): Promise<readonly { table: string; name: string }[]> {
  const { rows } = await sql<{ table: string; name: string }>`
    select conrelid::regclass::text as table, conname as name from pg_constraint
    where not convalidated and connamespace = current_schema()::regnamespace order by 1, 2`.execute(db);
  return rows;
}
