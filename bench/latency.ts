import type { OpenLoopResult } from './load/open-loop.ts';
import type { Prepared } from './prepare.ts';
import { AT_ONCE, type Manner } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { type Spread, spread } from './statistics.ts';

export interface LatencyPace {
  readonly rounds: number;
  readonly seconds: number;
}

export interface LatencyLine {
  readonly name: string;
  readonly label: string;
  readonly p50Ms: Spread;
  readonly p99Ms: Spread;
  readonly firstByteP50Ms: Spread;
  readonly firstByteP99Ms: Spread;
}

export const REQUESTS_PER_SECOND = 100;
const WARM_UP_SECONDS = 0.5;

/** A provider that thinks before it speaks. */
export const SLOW: Manner = { ...AT_ONCE, delayMs: 50 };
/** One that thinks, and then gives what it has every 20 ms. */
export const DRIPPING: Manner = { ...AT_ONCE, delayMs: 50, pieces: 24, pieceMs: 20 };

/** Measures the rows in interleaved rounds at a fixed rate of requests, behind an upstream that speaks in this manner. */
export async function measureLatency(
  setup: Setup,
  rows: readonly Prepared[],
  manner: Manner,
  { rounds, seconds }: LatencyPace,
  onProgress: (message: string) => void,
): Promise<LatencyLine[]> {
  const measured = rows.map((row) => ({ ...row, results: [] as OpenLoopResult[] }));
  await setup.speak(manner);
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < measured.length; turn++) {
      const each = measured[(round + turn) % measured.length] as (typeof measured)[number];
      const { row, plan, expected } = each;
      onProgress(`latency, round ${round + 1} of ${rounds}: ${row.label}`);
      const { port } = setup.target(row.target, row.processes);
      const result = await setup.load<OpenLoopResult>(row, {
        kind: 'open-loop',
        ...{ port, plan, expected, seconds },
        ...{ requestsPerSecond: REQUESTS_PER_SECOND, warmUpSeconds: WARM_UP_SECONDS },
      });
      each.results.push(result);
    }
  }
  await setup.speak(AT_ONCE);
  return measured.map(({ row: { name, label }, results }) => ({
    ...{ name, label },
    p50Ms: spread(results.map(({ p50Ms }) => p50Ms)),
    p99Ms: spread(results.map(({ p99Ms }) => p99Ms)),
    firstByteP50Ms: spread(results.map(({ firstByteP50Ms }) => firstByteP50Ms)),
    firstByteP99Ms: spread(results.map(({ firstByteP99Ms }) => firstByteP99Ms)),
  }));
}
