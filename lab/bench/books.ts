import { randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { audit } from '../../src/ledger/audit.ts';
import { MICRO_USD_PER_CENT } from '../../src/lib/money.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { startPostgres } from '../../src/sandbox/postgres.ts';
import { bookDeposit } from '../../test/support/prepaid.ts';
import { type FillSizes, fillLedger } from './fill-ledger.ts';
import { ACCOUNTS, accountId, FUNDS_MICRO_USD, wallets } from './world.ts';

/** A PostgreSQL server for the benchmark, with funded accounts and wallets. */
export interface Books {
  /** URL over the server's Unix socket. */
  readonly url: string;
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
 * @param settings of PostgreSQL, by name
 * @param sizes of the ledger. The paying accounts are spread among the others. Undefined creates no others.
 */
export async function openBooks(
  folder: string,
  settings: Readonly<Record<string, string>>,
  sizes: FillSizes | undefined,
): Promise<Books> {
  const postgres = await startPostgres({ dataDir: join(folder, 'database') });
  const db = openDatabase(postgres.url, { maxConnections: AT_A_TIME, statementTimeoutMs: 0 });
  const remove = async () => {
    await db.destroy();
    await postgres.stop();
    await rm(postgres.home, { recursive: true, force: true });
  };
  try {
    await migrate(postgres.url);
    if (sizes) await fill(db, sizes);
    await fund(db);
    await set(db, { track_wal_io_timing: 'on', ...settings });
    const pidFile = await readFile(join(postgres.home, 'cluster/data/postmaster.pid'), 'utf8');
    return {
      ...{ url: postgres.nearUrl, db, postmaster: Number.parseInt(pidFile, 10), remove },
      audit: async () => {
        const findings = await audit(db);
        if (findings.length > 0) throw new Error(`the audit has found: ${findings.map(({ rule }) => rule).join('; ')}`);
      },
    };
  } catch (error) {
    await remove();
    throw error;
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

async function fill(db: Database, sizes: FillSizes): Promise<void> {
  // A small limit would make the log repeat whole pages after each checkpoint of a ledger of gigabytes.
  await set(db, { max_wal_size: '8GB' });
  const cards = Array.from({ length: ACCOUNTS }, (_, index) => accountId(index));
  await fillLedger(db, sizes, { cards, wallets: wallets().map(({ address }) => address) });
  // The pages of the fill must not be written during the measurement.
  await sql`checkpoint`.execute(db);
}

/** Credits every account and wallet through the service's own bookings. */
async function fund(db: Database): Promise<void> {
  const amountCents = Number(FUNDS_MICRO_USD / MICRO_USD_PER_CENT);
  const entries = wallets().entries();
  const book = async () => {
    for (const [index, { address }] of entries) {
      await creditTopUp(db, {
        topUpId: randomUUID(),
        sessionId: `cs_test_${randomUUID()}`,
        accountId: accountId(index),
        livemode: false,
        amountCents,
        challengeId: null,
      });
      await bookDeposit(db, address, FUNDS_MICRO_USD);
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, book));
}
