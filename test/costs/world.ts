import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import type { Test } from 'tap';
import type { StubPorts } from '../../bench/servers/main.ts';
import { startProgram, typescript } from '../../bench/targets/program.ts';
import { accountId, PAY_TO, wallets } from '../../bench/world.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { startPostgres } from '../../src/sandbox/postgres.ts';
import { creditTopUp } from '../../src/top-up/credit-top-up.ts';
import { databaseDirectory } from '../support/database-directory.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { bookDeposit } from '../support/prepaid.ts';
import { startCountingProxy, type Traffic } from './counting-proxy.ts';

export interface World {
  readonly gateway: GatewayProcess;
  readonly db: Database;
  readonly traffic: Traffic;
}

/**
 * A gateway in a process of its own that runs no jobs, on a database server that nobody else uses, whose log has
 * nothing but what transactions write: no pages after checkpoints, no vacuum. As many card accounts and wallets as are
 * asked for have money; facilitator and chain agree to everything.
 */
export async function startWorld(t: Test, payers: number): Promise<World> {
  const dataDir = await mkdtemp(join(await databaseDirectory(), 'speechgate-costs-'));
  t.teardown(() => rm(dataDir, { recursive: true, force: true }));
  const postgres = await startPostgres({ dataDir, durable: false });
  t.teardown(() => postgres.stop());
  await migrate(postgres.url);
  const db = openDatabase(postgres.url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  for (const setting of ['autovacuum = off', "checkpoint_timeout = '1d'", "max_wal_size = '8GB'"]) {
    await sql`alter system set ${sql.raw(setting)}`.execute(db);
  }
  await sql`select pg_reload_conf()`.execute(db);
  await fund(db, payers);

  const filesDir = await mkdtemp(join(tmpdir(), 'speechgate-costs-'));
  t.teardown(() => rm(filesDir, { recursive: true, force: true }));
  const stubs = await startProgram({ name: 'stubs', args: typescript('bench/servers/main.ts'), folder: filesDir });
  t.teardown(() => stubs.stop());
  const { upstream, facilitator, node } = await stubs.told<StubPorts>();
  const proxy = await startCountingProxy(t, postgres.url);
  const settings = {
    DATABASE_URL: proxy.url,
    DATA_DIR: filesDir,
    SPEECH_BASE_URL: `http://127.0.0.1:${upstream}/v1`,
    STRIPE_SECRET_KEY: 'sk_test_costs',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    X402_PAY_TO: PAY_TO,
    X402_FACILITATOR_URL: `http://127.0.0.1:${facilitator}`,
    X402_RPC_URL: `http://127.0.0.1:${node}`,
    QUOTE_SECRET: 'a-quote-secret-of-the-costs-of-32-bytes-or-more',
    RATE_LIMIT_MAX: '600',
    EDGE_RATE_LIMIT_MAX: '1000000',
    RECONCILE_INTERVAL_MS: '86400000',
  };
  const gateway = await startGatewayProcess(t, settings, ['--role=web']);
  return { gateway, db, traffic: proxy.traffic };
}

async function fund(db: Database, payers: number): Promise<void> {
  const addresses = wallets().map(({ address }) => address);
  for (let index = 0; index < payers; index++) {
    await creditTopUp(db, {
      ...{ topUpId: randomUUID(), sessionId: `cs_test_${randomUUID()}`, accountId: accountId(index) },
      ...{ livemode: false, amountCents: 100, challengeId: null },
    });
    await bookDeposit(db, addresses[index] as string, 1_000_000n);
  }
}
