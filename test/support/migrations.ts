import { Migrator, sql } from 'kysely';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { readSqlFiles, type SqlFile } from '../../src/db/sql-files.ts';

/** The newest migration of the first release, each of which makes an area's tables; before it there is nothing to upgrade. */
export const BASELINE = '0008_operators';

export const migrationFiles = (): Promise<SqlFile[]> => readSqlFiles('migrations');

/** Applies these migrations as `src/db/migrate.ts` notes them, as a release that knows no others would have. */
export async function applyMigrations(db: Database, files: readonly SqlFile[]): Promise<void> {
  const migrator = new Migrator({
    db,
    provider: {
      getMigrations: async () =>
        Object.fromEntries(
          files.map(({ name, text }) => [name, { up: async (on) => void (await sql.raw(text).execute(on)) }]),
        ),
    },
    migrationTableName: 'schema_migration',
    migrationLockTableName: 'schema_migration_lock',
  });
  const { error } = await migrator.migrateToLatest();
  if (error) throw error;
}

/** Brings an empty database to the schema that this migration leaves. */
export async function migrateUpTo(url: string, last: string): Promise<void> {
  const db = openDatabase(url, { maxConnections: 1 });
  try {
    await applyMigrations(
      db,
      (await migrationFiles()).filter(({ name }) => name <= last),
    );
  } finally {
    await db.destroy();
  }
}
