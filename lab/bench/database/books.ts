import { randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Database, openDatabase } from '../../../src/db/database.ts';
import { migrate } from '../../../src/db/migrate.ts';
import { audit } from '../../../src/ledger/audit.ts';
import { MICRO_USD_PER_CENT } from '../../../src/lib/money.ts';
import { creditTopUp } from '../../../src/payments/top-up/credit-top-up.ts';
import { startPostgres } from '../../../src/sandbox/postgres.ts';
import { bookDeposit } from '../../../test/support/prepaid.ts';
import type { FillSizes } from '../growth/fill/sizes.ts';
import { fillLedger } from '../growth/fill-ledger.ts';
import { ACCOUNTS, accountId, FUNDS_MICRO_USD, wallets } from '../world.ts';

/** A PostgreSQL server for the benchmark, with funded accounts and wallets. */
export interface Books {
  readonly url: string;
  /** URL over the server's Unix socket. */
  readonly nearUrl: string;
  readonly db: Database;
  /** Process id of the server. All its other processes are children. */
  readonly postmaster: number;
  /** @throws with the findings of the audit */
  audit(): Promise<void>;
  remove(): Promise<void>;
}

/** Concurrent credits. */
const AT_A_TIME = 16;

/**
 * @param folder must be on a disk, since each commit waits for the disk
 * @param options sizes: of the ledger, the paying accounts spread among the others. settings: of PostgreSQL, by name
 */
export async function openBooks(
  folder: string,
  { sizes, settings }: { sizes: FillSizes | undefined; settings: Readonly<Record<string, string>> },
  onProgress: (message: string) => void,
): Promise<Books> {
  const dataDir = join(folder, 'database');
  const postgres = await startPostgres({ dataDir });
  const db = openDatabase(postgres.url, { maxConnections: AT_A_TIME, statementTimeoutMs: 0 });
  try {
    await migrate(postgres.url);
    if (sizes) await fill(db, sizes, onProgress);
    await fund(db);
    await set(db, { track_wal_io_timing: 'on', ...settings });
    const pidFile = await readFile(join(postgres.home, 'cluster/data/postmaster.pid'), 'utf8');
    return {
      url: postgres.url,
      nearUrl: postgres.nearUrl,
      db,
      postmaster: Number.parseInt(pidFile, 10),
      audit: async () => {
        const findings = await audit(db);
        if (findings.length > 0) throw new Error(`the audit has found: ${findings.map(({ rule }) => rule).join('; ')}`);
      },
      remove,
    };
  } catch (error) {
    await remove();
    throw error;
  }

  async function remove() {
    await db.destroy();
    await postgres.stop();
    await rm(postgres.home, { recursive: true, force: true });
  }
}

/** @throws when a setting would need a restart, or is wrong */
async function set(db: Database, settings: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, value] of Object.entries(settings)) {
    await sql`alter system set ${sql.ref(name)} = ${sql.lit(value)}`.execute(db);
  }
  const { rows } = await sql<{ name: string }>`
    select name from pg_file_settings
    where sourcefile like '%postgresql.auto.conf' and not applied`.execute(db);
  if (rows.length > 0) throw new Error(`PostgreSQL does not apply ${rows.map(({ name }) => name).join(', ')}`);
  await sql`select pg_reload_conf()`.execute(db);
}

/** Interval of progress messages during the fill. */
const PROGRESS_EVERY_MS = 5000;

async function fill(db: Database, sizes: FillSizes, onProgress: (message: string) => void): Promise<void> {
  // A small limit would make the log repeat whole pages after each checkpoint of a ledger of gigabytes.
  await sql`alter system set max_wal_size = '8GB'`.execute(db);
  await sql`select pg_reload_conf()`.execute(db);
  let shownAt = performance.now();
  await fillLedger(db, sizes, {
    known: {
      cards: Array.from({ length: ACCOUNTS }, (_, index) => accountId(index)),
      wallets: wallets().map(({ address }) => address),
    },
    progress: (what, done, of) => {
      if (performance.now() < shownAt + PROGRESS_EVERY_MS) return;
      shownAt = performance.now();
      onProgress(`filling: ${done.toLocaleString('en')} of ${of.toLocaleString('en')} ${what}`);
    },
  });
  // The pages of the fill must not be written during the measurement.
  await sql`checkpoint`.execute(db);
}

/** Credits every account and wallet through the service's own bookings. */
async function fund(db: Database): Promise<void> {
  const payers = wallets();
  const cents = Number(FUNDS_MICRO_USD / MICRO_USD_PER_CENT);
  let next = 0;
  const book = async () => {
    for (let index = next++; index < ACCOUNTS; index = next++) {
      await creditTopUp(db, {
        ...{ topUpId: randomUUID(), sessionId: `cs_test_${randomUUID()}`, accountId: accountId(index) },
        ...{ livemode: false, amountCents: cents, challengeId: null },
      });
      await bookDeposit(db, (payers[index] as { address: string }).address, FUNDS_MICRO_USD);
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, book));
}
