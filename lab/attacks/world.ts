import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { migrate } from '../../src/db/migrate.ts';
import { startPostgres } from '../../src/sandbox/postgres.ts';
import type { FaultyFacilitator } from '../../test/support/faulty-facilitator.ts';
import { Teardowns } from '../soak/teardowns.ts';
import { type Chain, startFundedChain } from './servers/chain.ts';
import { type Plans, startPlannedFacilitator } from './servers/facilitator.ts';
import { startUpstream, type Upstream } from './servers/upstream.ts';

/** Parts that all targets share. They end with the run. */
export interface World {
  readonly chain: Chain;
  readonly facilitator: FaultyFacilitator & { readonly plans: Plans };
  readonly upstream: Upstream;
  /** Removed when the world closes. */
  readonly folder: string;
  /** Creates a database with the current schema. @returns its URL */
  database(name: string): Promise<string>;
  teardown(end: () => unknown): void;
  close(): Promise<void>;
}

/** Starts chain, facilitator, speech server and database. @throws when one of them cannot start */
export async function openWorld(): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-attacks-'));
  const owner = new Teardowns();
  const close = owner.close.bind(owner);
  owner.teardown(() => rm(folder, { recursive: true, force: true }));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void close().finally(() => process.exit(1)));
  }
  try {
    const postgres = await startPostgres({ dataDir: join(folder, 'database'), durable: false });
    owner.teardown(async () => {
      await postgres.stop();
      await rm(postgres.home, { recursive: true, force: true });
    });
    const chain = await startFundedChain();
    owner.teardown(chain.stop);
    const facilitator = await startPlannedFacilitator(chain);
    owner.teardown(facilitator.close);
    const upstream = await startUpstream();
    owner.teardown(upstream.close);
    return {
      ...{ chain, facilitator, upstream, folder, close },
      database: (name) => createDatabase(postgres.adminUrl, name),
      teardown: owner.teardown,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function createDatabase(adminUrl: string, name: string): Promise<string> {
  const client = new pg.Client(adminUrl);
  await client.connect();
  await client.query(`create database ${name}`);
  await client.end();
  const url = new URL(adminUrl);
  url.pathname = `/${name}`;
  await migrate(url.href);
  return url.href;
}
