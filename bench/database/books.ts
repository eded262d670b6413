import { randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { audit } from '../../src/ledger/audit.ts';
import { MICRO_USD_PER_CENT } from '../../src/lib/money.ts';
import { startPostgres } from '../../src/sandbox/postgres.ts';
import { creditTopUp } from '../../src/top-up/credit-top-up.ts';
import { bookDeposit } from '../../test/support/prepaid.ts';
import { ACCOUNTS, accountId, FUNDS_MICRO_USD, wallets } from '../world.ts';

/** A PostgreSQL server of the benchmark's own with funded accounts and wallets. */
export interface Books {
  readonly url: string;
  /** Of the server's Unix socket. */
  readonly nearUrl: string;
  readonly db: Database;
  /** Of the server: its processes are all below it. */
  readonly postmaster: number;
  /** Throws with what the audit has found. */
  audit(): Promise<void>;
  /** Stops the server and removes its files. */
  remove(): Promise<void>;
}

/** Credits that are booked at a time. */
const AT_A_TIME = 16;

/**
 * @param folder on a disk, since each commit is waited for until it is there
 * @param fill what else is written, before accounts and wallets are funded
 */
export async function openBooks(
  folder: string,
  fill: (db: Database) => Promise<void> = async () => {},
): Promise<Books> {
  const dataDir = join(folder, 'database');
  const postgres = await startPostgres({ dataDir });
  const db = openDatabase(postgres.url, { maxConnections: AT_A_TIME, statementTimeoutMs: 0 });
  try {
    await migrate(postgres.url);
    await fill(db);
    await fund(db);
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

/** Every account and wallet gets its money as the service would book it. */
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
