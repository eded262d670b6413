import { sql } from 'kysely';
import { type LoadResult, latencyOf, type PartResult } from './load/load.ts';
import type { Prepared } from './prepare.ts';
import { AT_ONCE, type Manner } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { type Spread, spread } from './statistics.ts';
import { eventLoopP99Ms, readMetrics } from './targets/metrics.ts';

export interface LatencyPace {
  readonly rounds: number;
  readonly seconds: number;
}

/** What may delay a request at the gateway or in PostgreSQL. */
interface Causes<Figure> {
  readonly eventLoopP99Ms: Figure;
  readonly gcMsPerSecond: Figure;
  /** Of PostgreSQL's log, which commits wait for. */
  readonly walSyncsPerSecond: Figure;
  readonly walSyncMs: Figure;
}

export interface LatencyLine {
  readonly name: string;
  readonly label: string;
  readonly p50Ms: Spread;
  readonly p99Ms: Spread;
  readonly firstByteP50Ms: Spread;
  readonly firstByteP99Ms: Spread;
  /** Of the gateway's rows. */
  readonly causes?: Causes<Spread>;
}

export const REQUESTS_PER_SECOND = 100;
const WARM_UP_SECONDS = 0.5;
/** More than are ever busy, unless the target stalls for seconds. */
const CONNECTIONS = 200;

export const SLOW: Manner = { ...AT_ONCE, delayMs: 50 };
/** Waits 50 ms, then sends a piece every 20 ms. */
export const DRIPPING: Manner = { ...AT_ONCE, delayMs: 50, pieces: 24, pieceMs: 20 };

/** Measures the rows in interleaved rounds at a fixed request rate. @param manner how the upstream speaks */
export async function measureLatency(
  setup: Setup,
  rows: readonly Prepared[],
  manner: Manner,
  { rounds, seconds }: LatencyPace,
  onProgress: (message: string) => void,
): Promise<LatencyLine[]> {
  const measured = rows.map((row) => ({ ...row, results: [] as PartResult[], causes: [] as Causes<number>[] }));
  await setup.speak(manner);
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < measured.length; turn++) {
      const each = measured[(round + turn) % measured.length] as (typeof measured)[number];
      const { row, plan, expected } = each;
      onProgress(`latency, round ${round + 1} of ${rounds}: ${row.label}`);
      const { port, pid, adminPort } = setup.target(row.target, row.processes);
      const causesOf = adminPort === undefined ? undefined : await watchCauses(setup, adminPort);
      const { parts } = await setup.load<LoadResult>(row, {
        kind: 'load',
        port,
        parts: [{ name: row.name, share: 1, plan, expected }],
        pace: { requestsPerSecond: REQUESTS_PER_SECOND, connections: CONNECTIONS },
        warmUpSeconds: WARM_UP_SECONDS,
        seconds,
        targetPid: pid,
      });
      if (causesOf) each.causes.push(await causesOf());
      const part = parts[row.name] as PartResult;
      if (part.unsent > 0) throw new Error(`${row.label}: ${part.unsent} requests found no free connection`);
      each.results.push(part);
    }
  }
  await setup.speak(AT_ONCE);
  return measured.map(({ row: { name, label }, results, causes }) => ({
    ...{ name, label },
    p50Ms: spread(results.map((part) => latencyOf([part], 0.5))),
    p99Ms: spread(results.map((part) => latencyOf([part], 0.99))),
    firstByteP50Ms: spread(results.map((part) => latencyOf([part], 0.5, 'firstBytesMs'))),
    firstByteP99Ms: spread(results.map((part) => latencyOf([part], 0.99, 'firstBytesMs'))),
    ...(causes.length > 0 && {
      causes: {
        eventLoopP99Ms: spread(causes.map((each) => each.eventLoopP99Ms)),
        gcMsPerSecond: spread(causes.map((each) => each.gcMsPerSecond)),
        walSyncsPerSecond: spread(causes.map((each) => each.walSyncsPerSecond)),
        walSyncMs: spread(causes.map((each) => each.walSyncMs)),
      },
    }),
  }));
}

/** PostgreSQL may report its syncs a second late. @returns a function that reads the causes since this call */
async function watchCauses({ books: { db } }: Setup, adminPort: number): Promise<() => Promise<Causes<number>>> {
  const read = async () => {
    const metrics = await readMetrics(adminPort);
    const { rows } = await sql<{ syncs: number; syncMs: number }>`
      select sum(fsyncs)::float8 as syncs, sum(fsync_time) as "syncMs" from pg_stat_io where object = 'wal'`.execute(
      db,
    );
    const gcSeconds = metrics('nodejs_gc_duration_seconds_sum').reduce((sum, each) => sum + each, 0);
    return { at: performance.now(), metrics, gcSeconds, ...(rows[0] as { syncs: number; syncMs: number }) };
  };
  const before = await read();
  return async () => {
    const after = await read();
    const seconds = (after.at - before.at) / 1000;
    const syncs = after.syncs - before.syncs;
    return {
      eventLoopP99Ms: eventLoopP99Ms(after.metrics),
      gcMsPerSecond: ((after.gcSeconds - before.gcSeconds) * 1000) / seconds,
      walSyncsPerSecond: syncs / seconds,
      walSyncMs: (after.syncMs - before.syncMs) / Math.max(1, syncs),
    };
  };
}
