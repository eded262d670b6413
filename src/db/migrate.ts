import { readdir, readFile } from 'node:fs/promises';
import { Logger, runMigrations } from 'graphile-worker';
import { type Kysely, type Migration, type MigrationProvider, Migrator, sql } from 'kysely';
import type { DB } from '../../db/tables.ts';
import { grantApplicationRole } from './application-role.ts';
import { LOCK_TIMEOUT_MS, lockBriefly, untilUnlocked } from './brief-locks.ts';
import { openDatabase } from './database.ts';
import { openQueuePool } from './queue-pool.ts';
import { validateConstraints } from './validate-constraints.ts';

const MIGRATIONS = new URL('../../db/migrations/', import.meta.url);

/** Any number that nothing else in this database locks. */
const QUEUE_MIGRATION_LOCK = 7_300_003;
/** The role that gets the application's rights where no other one is named. */
export const APPLICATION_ROLE = 'speechgate_app';
const silentLogger = new Logger(() => () => {});

const provider: MigrationProvider = {
  async getMigrations() {
    const migrations: Record<string, Migration> = {};
    for (const file of (await readdir(MIGRATIONS)).filter((name) => name.endsWith('.sql'))) {
      const text = await readFile(new URL(file, MIGRATIONS), 'utf8');
      migrations[file.slice(0, -'.sql'.length)] = {
        up: async (db) => {
          await lockBriefly(db);
          await sql.raw(text).execute(db);
        },
      };
    }
    return migrations;
  },
};

const migrator = <T>(db: Kysely<T>) =>
  new Migrator({
    db,
    provider,
    migrationTableName: 'schema_migration',
    migrationLockTableName: 'schema_migration_lock',
  });

export interface Migrated {
  /** The migrations that this call applied. */
  readonly applied: readonly string[];
  /** Constraints that rows of earlier releases break. */
  readonly notValid: readonly string[];
  /** True when the role exists, is another one than the owner, and has its rights now. */
  readonly hasGranted: boolean;
  /** Migrations of a newer release that are there already. Then nothing is changed: rights are that release's to give. */
  readonly newer: readonly string[];
}

/**
 * Brings the database to the current schema, and gives the application's role its rights where there is one. Several
 * processes may call it at once: they take turns. The queue's own schema comes first, so that ours being current
 * means that both are. Gateways of the release before serve meanwhile: each migration is a transaction of its own, and
 * what waits for a lock gives up soon and begins anew.
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
  const pgPool = openQueuePool(databaseUrl, {
    ...{ maxConnections: 1, statementTimeoutMs: 0, lockTimeoutMs: LOCK_TIMEOUT_MS },
  });
  try {
    await db.transaction().execute(async (turn) => {
      await sql`select pg_advisory_xact_lock(${QUEUE_MIGRATION_LOCK})`.execute(turn);
      await untilUnlocked(() => runMigrations({ pgPool, logger: silentLogger }));
    });
  } finally {
    await pgPool.end();
  }
}

/** Names of the migrations that the database still lacks; empty when its schema is current. */
export async function pendingMigrations<T>(db: Kysely<T>): Promise<string[]> {
  const known = await migrator(db).getMigrations();
  return known.filter((migration) => migration.executedAt === undefined).map((migration) => migration.name);
}

/** Names of the migrations that the database has and this release does not know: a newer one has been there. */
export async function newerMigrations<T>(db: Kysely<T>): Promise<string[]> {
  const known = Object.keys(await provider.getMigrations());
  const { rows } = await sql<{ name: string }>`select name from schema_migration order by name`.execute(db);
  return rows.map(({ name }) => name).filter((name) => !known.includes(name));
}
