import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { startPostgres } from '../../src/sandbox/postgres.ts';
import type { FillSizes } from './fill/sizes.ts';
import { fillLedger } from './fill-ledger.ts';
import { CONCURRENCY } from './rates.ts';

/** A durable database of its own with a filled ledger. */
export interface FilledLedger {
  readonly url: string;
  readonly db: Database;
  readonly sizes: FillSizes;
  readonly fillSeconds: number;
  /** Stops the server and removes its files. */
  remove(): Promise<void>;
}

/** Between two lines that tell how far it is. */
const TELL_EVERY_MS = 5000;

export async function openFilledLedger(
  name: string,
  sizes: FillSizes,
  onProgress: (message: string) => void,
): Promise<FilledLedger> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-growth-'));
  const postgres = await startPostgres({ dataDir: folder });
  const db = openDatabase(postgres.url, { maxConnections: CONCURRENCY, statementTimeoutMs: 0 });
  const remove = async () => {
    await db.destroy();
    await postgres.stop();
    await rm(postgres.home, { recursive: true, force: true });
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await migrate(postgres.url);
    // For a ledger of gigabytes: else most of the log repeats whole pages after each of its checkpoints.
    await sql`alter system set max_wal_size = '8GB'`.execute(db);
    await sql`select pg_reload_conf()`.execute(db);
    const begunAt = performance.now();
    let toldAt = begunAt;
    await fillLedger(db, sizes, {
      progress: (what, done, of) => {
        if (performance.now() < toldAt + TELL_EVERY_MS) return;
        toldAt = performance.now();
        onProgress(`filling the ${name} ledger: ${done.toLocaleString('en')} of ${of.toLocaleString('en')} ${what}`);
      },
    });
    return { url: postgres.url, db, sizes, fillSeconds: (performance.now() - begunAt) / 1000, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}
