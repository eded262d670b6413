import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Client } from './client.ts';
import type { CostFlow } from './flows.ts';
import type { World } from './world.ts';

/** What one request takes. */
export interface Costs {
  readonly statements: number;
  /** Transactions that have written. */
  readonly commits: number;
  /** System calls of the gateway process; a socket that is written to, or read from, counts as a file. */
  readonly writes: number;
  readonly reads: number;
  readonly bytesToClient: number;
  readonly bytesToDatabase: number;
  readonly bytesFromDatabase: number;
  /** Of PostgreSQL's log. */
  readonly walBytes: number;
}

export const WARM_UP = 30;
export const MEASURED = 100;
/** Until what a request leaves to be done is done, such as its line in the log. */
const SETTLE_MS = 300;

/** Asks one request after the other. */
export async function measure(world: World, client: Client, flow: CostFlow): Promise<Costs> {
  const requests = await flow.requests(Number(new URL(world.gateway.url).port), WARM_UP + MEASURED);
  const ask = async (request: Buffer) => {
    const status = await client.ask(request);
    if (status !== flow.status) throw new Error(`status ${status} instead of ${flow.status}`);
  };
  for (const request of requests.slice(0, WARM_UP)) await ask(request);
  const before = await readCounts(world, client);
  for (const request of requests.slice(WARM_UP)) await ask(request);
  const after = await readCounts(world, client);
  const each = (name: keyof Costs) => Math.round(((after[name] - before[name]) / MEASURED) * 100) / 100;
  return {
    ...{ statements: each('statements'), commits: each('commits'), writes: each('writes'), reads: each('reads') },
    bytesToClient: each('bytesToClient'),
    bytesToDatabase: each('bytesToDatabase'),
    bytesFromDatabase: each('bytesFromDatabase'),
    walBytes: each('walBytes'),
  };
}

async function readCounts({ gateway, db, traffic }: World, client: Client): Promise<Costs> {
  await sleep(SETTLE_MS);
  const io = await readFile(`/proc/${gateway.child.process.pid}/io`, 'latin1');
  const { statements, upkeep, bytesToDatabase, bytesFromDatabase } = traffic;
  const { rows } = await sql<{ transactions: string; wal: string }>`
    select pg_snapshot_xmax(pg_current_snapshot())::text as transactions,
           (pg_current_wal_insert_lsn() - '0/0')::text as wal`.execute(db);
  const [row] = rows as [(typeof rows)[number]];
  return {
    statements,
    // Each statement of upkeep is a transaction.
    commits: Number(row.transactions) - upkeep,
    writes: Number(/^syscw: (\d+)$/m.exec(io)?.[1]),
    reads: Number(/^syscr: (\d+)$/m.exec(io)?.[1]),
    ...{ bytesToClient: client.received, bytesToDatabase, bytesFromDatabase },
    walBytes: Number(row.wal),
  };
}
