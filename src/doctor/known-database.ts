import { sql } from 'kysely';
import { type Database, openDatabase } from '../db/database.ts';
import { faultOf, isAway, isRefused } from '../db/database-errors.ts';
import { pendingMigrations } from '../db/migrate.ts';
import { type Finding, fault, skipped } from './check.ts';

const CONNECTIONS = 4;

/** The database of the settings, which many checks ask: it is told once that it can't be reached. */
export class KnownDatabase {
  readonly #db: Database;
  #reached: Promise<unknown> | undefined;

  constructor(url: string) {
    this.#db = openDatabase(url, { maxConnections: CONNECTIONS });
  }

  /** A check that reads from the database; it is skipped when that can't be reached. */
  asking(read: (db: Database) => Promise<Finding>): () => Promise<Finding> {
    return async () => {
      const isReached = await this.#reach().then(
        () => true,
        () => false,
      );
      return isReached ? read(this.#db) : skipped('The database can not be asked.');
    };
  }

  /** Likewise, one that reads our tables: it is skipped without them, of which the schema's own check tells. */
  reading(read: (db: Database) => Promise<Finding>): () => Promise<Finding> {
    return this.asking(async (db) =>
      (await pendingMigrations(db)).length > 0 ? skipped('The schema is not current.') : read(db),
    );
  }

  /** Whether it can be asked at all. */
  async check(read: (db: Database) => Promise<Finding>): Promise<Finding> {
    try {
      await this.#reach();
    } catch (error) {
      const told = faultOf(error as Error);
      if (isRefused(error)) {
        return fault(`The server refuses: ${told}.`, "Correct DATABASE_URL's user, password and database.");
      }
      const fix = 'Start the server, and have DATABASE_URL name its host and port; look at firewalls between.';
      return isAway(error)
        ? fault(`The server can't be reached: ${told}.`, fix)
        : fault(`The server can't be asked: ${told}.`, 'Mend what the message says, or correct DATABASE_URL.');
    }
    return read(this.#db);
  }

  close(): Promise<void> {
    return this.#db.destroy();
  }

  #reach(): Promise<unknown> {
    this.#reached ??= sql`select 1`.execute(this.#db);
    return this.#reached;
  }
}
