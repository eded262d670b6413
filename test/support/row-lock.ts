import { type RawBuilder, sql } from 'kysely';
import type { Test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { until } from './until.ts';

export interface RowLock {
  /** Waits until this many statements wait for a lock in the database. */
  untilWaiting(statements: number): Promise<void>;
  release(): Promise<void>;
}

/** Locks the rows that the query selects for update, on a connection of its own. */
export async function lockRows(t: Test, url: string, query: RawBuilder<unknown>): Promise<RowLock> {
  const db = openDatabase(url, { maxConnections: 2, statementTimeoutMs: 0 });
  let release = () => {};
  t.teardown(() => {
    release();
    return db.destroy();
  });
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let transaction = Promise.resolve();
  await new Promise<void>((locked, failed) => {
    transaction = db.transaction().execute(async (trx) => {
      await query.execute(trx);
      locked();
      await released;
    });
    transaction.catch(failed);
  });
  return {
    untilWaiting: (statements) => until(async () => (await waiting(db)) >= statements),
    release: async () => {
      release();
      await transaction;
    },
  };
}

async function waiting(db: Database): Promise<number> {
  const { rows } = await sql`
    select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(db);
  return rows.length;
}
