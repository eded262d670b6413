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
/** System calls are those of the leanest so many requests: V8's own threads wake the process up in between. */
const BLOCK = 10;
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
  const calls = [await readCalls(world)];
  for (let from = WARM_UP; from < requests.length; from += BLOCK) {
    for (const request of requests.slice(from, from + BLOCK)) await ask(request);
    calls.push(await readCalls(world));
  }
  const after = await readCounts(world, client);
  const fewest = (name: keyof Calls) =>
    Math.min(...calls.slice(1).map((later, index) => (later[name] - (calls[index] as Calls)[name]) / BLOCK));
  const each = (name: Exclude<keyof Costs, keyof Calls>) =>
    Math.round(((after[name] - before[name]) / MEASURED) * 100) / 100;
  return {
    ...{ statements: each('statements'), commits: each('commits'), writes: fewest('writes'), reads: fewest('reads') },
    bytesToClient: each('bytesToClient'),
    bytesToDatabase: each('bytesToDatabase'),
    bytesFromDatabase: each('bytesFromDatabase'),
    walBytes: each('walBytes'),
  };
}

type Calls = Pick<Costs, 'writes' | 'reads'>;

async function readCalls({ gateway }: World): Promise<Calls> {
  const io = await readFile(`/proc/${gateway.child.process.pid}/io`, 'latin1');
  return { writes: Number(/^syscw: (\d+)$/m.exec(io)?.[1]), reads: Number(/^syscr: (\d+)$/m.exec(io)?.[1]) };
}

async function readCounts({ db, traffic }: World, client: Client): Promise<Omit<Costs, keyof Calls>> {
  await sleep(SETTLE_MS);
  const { statements, upkeep, bytesToDatabase, bytesFromDatabase } = traffic;
  const { rows } = await sql<{ transactions: string; wal: string }>`
    select pg_snapshot_xmax(pg_current_snapshot())::text as transactions,
           (pg_current_wal_insert_lsn() - '0/0')::text as wal`.execute(db);
  const [row] = rows as [(typeof rows)[number]];
  return {
    statements,
    // Each statement of upkeep is a transaction.
    commits: Number(row.transactions) - upkeep,
    ...{ bytesToClient: client.received, bytesToDatabase, bytesFromDatabase },
    walBytes: Number(row.wal),
  };
}
