import { type LoadResult, latencyOf, type PartResult } from './load/load.ts';
import { isSigned } from './load/requests.ts';
import type { Prepared } from './prepare.ts';
import { AT_ONCE } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { eventLoopP99Ms, readMetrics } from './targets/metrics.ts';
import { CONCURRENCY } from './world.ts';

export interface Pace {
  readonly rounds: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
}

export interface Round {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** CPU time of the target and of PostgreSQL for each request. */
  readonly cpuMs: number;
  readonly postgresCpuMs: number;
  readonly memory: number;
  /** 99th percentile of the gateway's event-loop delay. */
  readonly eventLoopP99Ms?: number;
}

export type Rounds = Readonly<Record<string, readonly Round[]>>;

interface Measured extends Prepared {
  readonly rounds: Round[];
}

/**
 * Measures the rows in interleaved rounds, so that other work on the machine affects all rows alike. Each round starts
 * with another row and opens new connections.
 */
export async function measureThroughput(
  setup: Setup,
  rows: readonly Prepared[],
  pace: Pace,
  onProgress: (message: string) => void,
): Promise<Rounds> {
  await setup.speak(AT_ONCE);
  const measured: Measured[] = rows.map((row) => ({ ...row, rounds: [] }));
  for (let round = 0; round < pace.rounds; round++) {
    for (let turn = 0; turn < measured.length; turn++) {
      const each = measured[(round + turn) % measured.length] as Measured;
      onProgress(`round ${round + 1} of ${pace.rounds}: ${each.row.label}`);
      each.rounds.push(await measure(setup, each, pace));
    }
  }
  return Object.fromEntries(measured.map(({ row, rounds }) => [row.name, rounds]));
}

async function measure(setup: Setup, measured: Measured, { warmUpSeconds, seconds }: Pace): Promise<Round> {
  const { row, plan, expected } = measured;
  const target = setup.target(row.target, row.processes);
  const { adminPort } = target;
  if (adminPort !== undefined) await readMetrics(adminPort);
  const result = await setup.load<LoadResult>(row, {
    kind: 'load',
    port: target.port,
    parts: [{ name: row.name, share: 1, plan, expected }],
    pace: { concurrency: CONCURRENCY },
    warmUpSeconds,
    seconds,
    targetPid: target.pid,
    ...(isSigned(plan) && { most: Math.ceil(mostPerSecond(measured) * (warmUpSeconds + seconds)) }),
    ...(/^(ours|floor|duty-.*)$/.test(row.target) && { postgresPid: setup.books.postmaster }),
  });
  const metrics = adminPort === undefined ? undefined : await readMetrics(adminPort);
  const part = result.parts[row.name] as PartResult;
  const requests = part.served;
  return {
    requestsPerSecond: requests / result.seconds,
    p50Ms: latencyOf([part], 0.5),
    p99Ms: latencyOf([part], 0.99),
    memory: result.memory,
    cpuMs: result.targetCpuMs / requests,
    postgresCpuMs: result.postgresCpuMs / requests,
    ...(metrics && { eventLoopP99Ms: eventLoopP99Ms(metrics) }),
  };
}

/** Assumed before the first measurement. */
const LEAST_PER_SECOND = 2_000;
/** A round may be this many times faster than the fastest one so far. */
const RESERVE = 2;

/** Upper bound of the next round's rate: this many requests have to be signed for each second. */
const mostPerSecond = ({ rate, rounds }: Measured): number =>
  Math.max(LEAST_PER_SECOND, RESERVE * Math.max(rate, ...rounds.map((round) => round.requestsPerSecond)));
