import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { migrate } from '../src/db/migrate.ts';
import type { RunningFacilitator } from '../src/sandbox/local-facilitator.ts';
import { startPostgres } from '../src/sandbox/postgres.ts';
import { type Chain, startFundedChain } from './servers/chain.ts';
import { type Plans, startPlannedFacilitator } from './servers/facilitator.ts';
import { startUpstream, type Upstream } from './servers/upstream.ts';

/** What all targets share, and what ends with the run. */
export interface World {
  readonly chain: Chain;
  readonly facilitator: RunningFacilitator & { readonly plans: Plans };
  readonly upstream: Upstream;
  /** For files; goes with the world. */
  readonly folder: string;
  /** A database of its own with the current schema. */
  database(name: string): Promise<string>;
  teardown(end: () => unknown): void;
  close(): Promise<void>;
}

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** Starts chain, facilitator, speech server and database. Throws when one of them can't be started. */
export async function openWorld(): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-attacks-'));
  const ends: (() => unknown)[] = [() => rm(folder, { recursive: true, force: true })];
  const remove = async () => {
    for (const signal of SIGNALS) process.off(signal, endBySignal);
    for (const end of ends.reverse()) await end();
  };
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= remove();
    return closing;
  };
  const endBySignal = () => void close().finally(() => process.exit(1));
  for (const signal of SIGNALS) process.once(signal, endBySignal);
  try {
    const postgres = await startPostgres({ dataDir: join(folder, 'database'), durable: false });
    ends.push(async () => {
      await postgres.stop();
      await rm(postgres.home, { recursive: true, force: true });
    });
    const chain = await startFundedChain();
    ends.push(chain.stop);
    const facilitator = await startPlannedFacilitator(chain);
    ends.push(facilitator.close);
    const upstream = await startUpstream();
    ends.push(upstream.close);
    return {
      ...{ chain, facilitator, upstream, folder, close },
      database: (name) => createDatabase(postgres.adminUrl, name),
      teardown: (end) => void ends.push(end),
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
