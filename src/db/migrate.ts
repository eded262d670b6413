import { Logger, runMigrations } from 'graphile-worker';
import { type Kysely, type Migration, type MigrationProvider, Migrator, sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import { grantApplicationRole } from './application-role.ts';
import { LOCK_TIMEOUT_MS, lockBriefly, lockByNumber, untilUnlocked } from './brief-locks.ts';
import { openDatabase, openQueuePool } from './database.ts';
import { readSqlFiles } from './sql-files.ts';

const CHECK_VIOLATION = '23514';

/** Validates constraints added as `not valid`, each in its own transaction, which blocks no reads or writes. */
async function validateConstraints<T>(db: Kysely<T>): Promise<string[]> {
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

export async function findNotValid<T>(db: Kysely<T>): Promise<readonly { table: string; name: string }[]> {
  const { rows } = await sql<{ table: string; name: string }>`
    select conrelid::regclass::text as table, conname as name from pg_constraint
    where not convalidated and connamespace = current_schema()::regnamespace order by 1, 2`.execute(db);
  return rows;
}

const QUEUE_MIGRATION_LOCK = 7_300_003;
export const APPLICATION_ROLE = 'speechgate_app';
const silentLogger = new Logger(() => () => {});

const provider: MigrationProvider = {
  async getMigrations() {
    const migrations: Record<string, Migration> = {};
    for (const { name, text } of await readSqlFiles('migrations')) {
      migrations[name] = {
        up: async (db) => {
          await lockBriefly(db);
          await sql.raw(text).execute(db);
        },
      };
    }
    return migrations;
  },
};

const tables = {
  migrationTableSchema: 'public',
  migrationTableName: 'schema_migration',
  migrationLockTableName: 'schema_migration_lock',
};
const migrator = <T>(db: Kysely<T>) => new Migrator({ db, provider, ...tables });

interface Migrated {
  readonly applied: readonly string[];
  readonly notValid: readonly string[];
  readonly hasGranted: boolean;
  /** Applied migrations of a newer release. `migrate` then changes nothing: that release grants the rights. */
  readonly newer: readonly string[];
}

/**
 * Migrates the schema and grants the application role its rights, if the role exists. Safe to run concurrently and
 * beside gateways of the previous release: each migration is one transaction with a short lock timeout. The queue's
 * schema comes first, so that a current service schema implies a current queue schema.
 */
export async function migrate(databaseUrl: string, applicationRole = APPLICATION_ROLE): Promise<Migrated> {
  const db = openDatabase(databaseUrl, { maxConnections: 2, statementTimeoutMs: 0 });
  try {
    const isCurrent = (await pendingMigrations(db)).length === 0;
    const newer = isCurrent ? await newerMigrations(db) : [];
    if (newer.length > 0) return { applied: [], notValid: [], hasGranted: false, newer };
    await migrateQueue(db, databaseUrl);
    return {
      applied: await applyPending(db),
      notValid: await validateConstraints(db),
      hasGranted: await untilUnlocked(() => grantApplicationRole(db, applicationRole)),
      newer,
    };
  } finally {
    await db.destroy();
  }
}

async function applyPending(db: Kysely<DB>): Promise<string[]> {
  const applied: string[] = [];
  while ((await pendingMigrations(db)).length > 0) {
    const results = await untilUnlocked(async () => {
      const { error, results = [] } = await migrator(db).migrateUp();
      if (error) throw error;
      return results;
    });
    applied.push(...results.map(({ migrationName }) => migrationName));
  }
  return applied;
}

async function migrateQueue(db: Kysely<DB>, databaseUrl: string): Promise<void> {
  const options = { maxConnections: 1, statementTimeoutMs: 0, lockTimeoutMs: LOCK_TIMEOUT_MS };
  const pgPool = openQueuePool(databaseUrl, options);
  try {
    await db.transaction().execute(async (turn) => {
      await lockByNumber(turn, QUEUE_MIGRATION_LOCK);
      await untilUnlocked(() => runMigrations({ pgPool, logger: silentLogger }));
    });
  } finally {
    await pgPool.end();
  }
}

export async function pendingMigrations<T>(db: Kysely<T>): Promise<string[]> {
  const applied = await appliedMigrations(db);
  const known = Object.keys(await provider.getMigrations()).sort();
  return known.filter((name) => !applied.includes(name));
}

export async function newerMigrations<T>(db: Kysely<T>): Promise<string[]> {
  const known = Object.keys(await provider.getMigrations());
  return (await appliedMigrations(db)).filter((name) => !known.includes(name));
}

/** Without the migrator, which reads all tables: it fails while another process replaces one, such as of the queue. */
async function appliedMigrations<T>(db: Kysely<T>): Promise<string[]> {
  const found = await sql<{ exists: boolean }>`
    select to_regclass('public.schema_migration') is not null as exists`.execute(db);
  if (!found.rows[0]?.exists) return [];
  const { rows } = await sql<{ name: string }>`select name from public.schema_migration order by name`.execute(db);
  return rows.map(({ name }) => name);
}
