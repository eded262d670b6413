import type { ClosedLoopResult } from './load/closed-loop.ts';
import { isSigned } from './load/requests.ts';
import type { Prepared } from './prepare.ts';
import { AT_ONCE } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { CONCURRENCY } from './world.ts';

export interface Pace {
  readonly rounds: number;
  readonly warmUpSeconds: number;
  readonly seconds: number;
}

/** What a row came to in one round. */
export interface Round {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** A request, of the target and of PostgreSQL. */
  readonly cpuMs: number;
  readonly postgresCpuMs: number;
  /** Resident, in bytes. */
  readonly memory: number;
  /** The delay of the gateway's event loop, its 99th percentile. */
  readonly eventLoopP99Ms?: number;
  readonly loadCpuMs: number;
}

export type Rounds = Readonly<Record<string, readonly Round[]>>;

interface Measured extends Prepared {
  readonly rounds: Round[];
}

/**
 * Measures the rows round by round, so that what else the machine does meets them all: each round has every row once,
 * and begins with another one. A row has fresh connections in each round.
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
  const readDelay = target.adminPort === undefined ? undefined : () => readEventLoopDelay(target.adminPort as number);
  await readDelay?.();
  const result = await setup.load<ClosedLoopResult>(row, {
    kind: 'closed-loop',
    ...{ port: target.port, plan, expected, concurrency: CONCURRENCY, warmUpSeconds, seconds },
    ...(isSigned(plan) && { most: Math.ceil(mostPerSecond(measured) * (warmUpSeconds + seconds)) }),
    ...{ targetPid: target.pid, postgresPid: row.target === 'ours' ? setup.books.postmaster : undefined },
  });
  const eventLoopP99Ms = await readDelay?.();
  const { requests, p50Ms, p99Ms, memory } = result;
  return {
    ...{ requestsPerSecond: requests / result.seconds, p50Ms, p99Ms, memory },
    cpuMs: result.targetCpuMs / requests,
    postgresCpuMs: result.postgresCpuMs / requests,
    loadCpuMs: result.loadCpuMs / requests,
    ...(eventLoopP99Ms !== undefined && { eventLoopP99Ms }),
  };
}

/** What every row is taken to be able to. */
const LEAST_PER_SECOND = 2_000;
/** A round may be so many times as fast as the fastest before it. */
const RESERVE = 2;

/** How many requests a second the next round has at most, to sign enough of them. */
const mostPerSecond = ({ rate, rounds }: Measured): number =>
  Math.max(LEAST_PER_SECOND, RESERVE * Math.max(rate, ...rounds.map((round) => round.requestsPerSecond)));

/** Between two samples of the event loop: of what Node.js measures, this much is no delay. */
const SAMPLED_EVERY_MS = 10;

/** The 99th percentile since it was read last, in milliseconds; of several processes the slowest one's. */
async function readEventLoopDelay(adminPort: number): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
  const seconds = [...metrics.matchAll(/^nodejs_eventloop_lag_p99_seconds\S* (\S+)/gm)].map(([, value]) =>
    Number(value),
  );
  if (seconds.length === 0) throw new Error('the gateway tells no event-loop lag');
  return Math.max(0, Math.max(...seconds) * 1000 - SAMPLED_EVERY_MS);
}
