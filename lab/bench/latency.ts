import { sql } from 'kysely';
import type { Cells } from '../figures.ts';
import type { PartResult } from './load/main.ts';
import type { Manner } from './servers/main.ts';
import type { Setup } from './setup.ts';
import { quantile, spread, verdict } from './statistics.ts';
import { eventLoopP99Ms, readMetrics } from './targets.ts';
import { interleave, type Prepared } from './throughput.ts';
import { AT_ONCE } from './world.ts';

export interface LatencyPace {
  readonly rounds: number;
  readonly seconds: number;
}

/** What may delay a request at the gateway or in PostgreSQL, whose log commits wait for. */
interface Causes {
  readonly loopP99Ms: number;
  readonly gcMsPerSecond: number;
  readonly walSyncsPerSecond: number;
  readonly walSyncMs: number;
}

interface Line {
  readonly name: string;
  readonly label: string;
  readonly results: PartResult[];
  readonly causes: Causes[];
}

export const REQUESTS_PER_SECOND = 100;
const WARM_UP_SECONDS = 0.5;
/** More than are ever busy, unless the target stalls for seconds. */
const CONNECTIONS = 200;
/** Limits of the latency that the gateway adds to the upstream. */
const [ADDED_P50_MS, ADDED_P99_MS] = [1.5, 4];
/** Limit of the time to first byte, relative to the bare proxy. */
const ADDED_FIRST_BYTE_MS = 2;

export const SLOW: Manner = { ...AT_ONCE, delayMs: 50 };
/** Waits 50 ms, then sends a piece every 20 ms. */
export const DRIPPING: Manner = { ...SLOW, pieces: 24, pieceMs: 20 };

/** Measures the rows at a fixed request rate. @param manner how the upstream speaks */
export async function measureLatency(
  setup: Setup,
  rows: readonly Prepared[],
  manner: Manner,
  { rounds, seconds }: LatencyPace,
): Promise<Line[]> {
  const lines = new Map(
    rows.map(({ row: { name, label } }) => [name, { name, label, results: [], causes: [] } as Line]),
  );
  await setup.speak(manner);
  await interleave('latency', rows, rounds, async ({ row, plan, expected }) => {
    const { port, pid, adminPort } = setup.target(row.target);
    const causesOf = adminPort === undefined ? undefined : await watchCauses(setup, adminPort);
    const { parts } = await setup.load(row, {
      parts: [{ name: row.name, share: 1, plan, expected }],
      ...{ port, requestsPerSecond: REQUESTS_PER_SECOND, connections: CONNECTIONS },
      ...{ warmUpSeconds: WARM_UP_SECONDS, seconds, targetPid: pid },
    });
    const line = lines.get(row.name) as Line;
    if (causesOf) line.causes.push(await causesOf());
    const result = parts[row.name] as PartResult;
    if (result.unsent > 0) throw new Error(`${row.label}: ${result.unsent} requests found no free connection`);
    line.results.push(result);
  });
  await setup.speak(AT_ONCE);
  return [...lines.values()];
}

/** PostgreSQL may report its syncs a second late. @returns a function that reads the causes since this call */
async function watchCauses({ books: { db } }: Setup, adminPort: number): Promise<() => Promise<Causes>> {
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
      loopP99Ms: eventLoopP99Ms(after.metrics),
      gcMsPerSecond: ((after.gcSeconds - before.gcSeconds) * 1000) / seconds,
      walSyncsPerSecond: syncs / seconds,
      walSyncMs: (after.syncMs - before.syncMs) / Math.max(1, syncs),
    };
  };
}

const median = ({ results }: Line, of: 'latenciesMs' | 'firstBytesMs', share: number): number =>
  spread(results.map((result) => quantile(result[of], share))).median;

const added = (ms: number): string => `${ms < 0 ? '−' : '+'}${Math.abs(ms).toFixed(1)}`;

/** Only the gateway's flows without a chain have a target value. */
const isAsked = ({ name }: Line): boolean => name === 'card' || name === 'prepaid';

export function latencyCells(lines: readonly Line[]): Cells {
  const [upstream] = lines as [Line];
  const cells = lines.map((line) => {
    const [p50, p99] = [median(line, 'latenciesMs', 0.5), median(line, 'latenciesMs', 0.99)];
    const more = [p50 - median(upstream, 'latenciesMs', 0.5), p99 - median(upstream, 'latenciesMs', 0.99)] as const;
    const cause = (name: keyof Causes, digits: number) =>
      line.causes.length > 0 ? spread(line.causes.map((each) => each[name])).median.toFixed(digits) : '';
    return [
      ...[line.label, p50.toFixed(1), p99.toFixed(1), ...(line === upstream ? ['', ''] : more.map(added))],
      isAsked(line) ? verdict(more[0] <= ADDED_P50_MS && more[1] <= ADDED_P99_MS) : '',
      ...[cause('loopP99Ms', 1), cause('gcMsPerSecond', 1), cause('walSyncsPerSecond', 0), cause('walSyncMs', 2)],
    ];
  });
  const asked = `asked ${ADDED_P50_MS} and ${ADDED_P99_MS}`;
  const causes = ['loop p99 ms', 'GC ms/s', 'WAL syncs/s', 'sync ms'];
  return [['target', 'p50 ms', 'p99 ms', 'added p50', 'added p99', asked, ...causes], ...cells];
}

export function firstByteCells(lines: readonly Line[]): Cells {
  const bare = median(lines.find(({ name }) => name === 'bare') as Line, 'firstBytesMs', 0.5);
  const cells = lines.map((line) => {
    const [p50, p99] = [median(line, 'firstBytesMs', 0.5), median(line, 'firstBytesMs', 0.99)];
    const [relative, isReached] = [line.name === 'bare' ? '' : added(p50 - bare), p50 - bare <= ADDED_FIRST_BYTE_MS];
    return [line.label, p50.toFixed(1), p99.toFixed(1), relative, isAsked(line) ? verdict(isReached) : ''];
  });
  return [['target', 'p50 ms', 'p99 ms', 'to the bare proxy', `asked ${ADDED_FIRST_BYTE_MS} at most`], ...cells];
}
