import type { ClosedLoop, ClosedLoopResult } from './load/closed-loop.ts';
import type { Plan } from './load/requests.ts';
import type { Row } from './rows.ts';
import { planOf } from './rows.ts';
import { AT_ONCE } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { challengeIn, takeSample } from './targets/sample.ts';
import { AUDIO_BYTES, CONCURRENCY } from './world.ts';

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
  /** Of the event loop of the gateway, the 99th percentile in milliseconds. */
  readonly eventLoopP99Ms?: number;
  readonly loadCpuMs: number;
}

export type Rounds = Readonly<Record<string, readonly Round[]>>;

interface Prepared {
  readonly row: Row;
  readonly plan: Plan;
  readonly expected: ClosedLoop['expected'];
  /** Requests a second, as it was last. */
  rate: number;
  readonly rounds: Round[];
}

/** Before a row's first round, to sign enough for it: more than any does. */
const FIRST_RATE = 4_000;
/** A round may be so much faster than the one before. */
const RESERVE = 1.5;

/**
 * Measures the rows round by round, so that what else the machine does meets them all: each round has every row once,
 * and begins with another one. A row has fresh connections in each round.
 */
export async function measureThroughput(
  setup: Setup,
  rows: readonly Row[],
  pace: Pace,
  onProgress: (message: string) => void,
): Promise<Rounds> {
  await setup.speak(AT_ONCE);
  const prepared: Prepared[] = [];
  for (const row of rows) prepared.push(await prepare(setup, row));
  for (let round = 0; round < pace.rounds; round++) {
    for (let turn = 0; turn < prepared.length; turn++) {
      const each = prepared[(round + turn) % prepared.length] as Prepared;
      onProgress(`round ${round + 1} of ${pace.rounds}: ${each.row.label}`);
      each.rounds.push(await measure(setup, each, pace));
    }
  }
  return Object.fromEntries(prepared.map(({ row, rounds }) => [row.name, rounds]));
}

async function prepare(setup: Setup, row: Row): Promise<Prepared> {
  const { port, program } = setup.target(row.target, row.processes);
  const unpaid = planOf(row, `http://127.0.0.1:${setup.stubs.upstream}`);
  const common = { row, rate: FIRST_RATE, rounds: [] };
  if (row.work !== 'challenge' && row.work !== 'paid') {
    return { ...common, plan: unpaid, expected: { status: 200, bytes: AUDIO_BYTES } };
  }
  if (row.target === 'prebuilt') {
    await program.send(await takeSample(setup.target('ours').port, unpaid));
    await program.listens(port);
  }
  const sample = await takeSample(port, unpaid);
  const challenge = challengeIn(sample);
  if (row.work === 'challenge') {
    return { ...common, plan: unpaid, expected: { status: 402, bytes: Buffer.from(sample.body, 'base64').length } };
  }
  const plan: Plan = { ...unpaid, payment: { by: 'direct', challenge } };
  return { ...common, plan, expected: { status: 200, bytes: AUDIO_BYTES } };
}

async function measure(setup: Setup, prepared: Prepared, { warmUpSeconds, seconds }: Pace): Promise<Round> {
  const { row, plan, expected } = prepared;
  const target = setup.target(row.target, row.processes);
  const readLag = target.adminPort === undefined ? undefined : () => readEventLoopLag(target.adminPort as number);
  await readLag?.();
  const result = await setup
    .load<ClosedLoopResult>({
      kind: 'closed-loop',
      ...{ port: target.port, plan, expected, concurrency: CONCURRENCY, warmUpSeconds, seconds },
      signed: Math.ceil(prepared.rate * RESERVE * (warmUpSeconds + seconds)),
      ...{ targetPid: target.pid, postgresPid: row.target === 'ours' ? setup.books.postmaster : undefined },
    })
    .catch((error: Error) => {
      throw new Error(`${row.label}: ${error.message}`);
    });
  const eventLoopP99Ms = await readLag?.();
  const { requests, p50Ms, p99Ms, memory } = result;
  prepared.rate = requests / result.seconds;
  return {
    ...{ requestsPerSecond: prepared.rate, p50Ms, p99Ms, memory },
    cpuMs: result.targetCpuMs / requests,
    postgresCpuMs: result.postgresCpuMs / requests,
    loadCpuMs: result.loadCpuMs / requests,
    ...(eventLoopP99Ms !== undefined && { eventLoopP99Ms }),
  };
}

/** The 99th percentile since it was read last, in milliseconds. */
async function readEventLoopLag(adminPort: number): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
  const value = /^nodejs_eventloop_lag_p99_seconds (\S+)/m.exec(metrics)?.[1];
  if (value === undefined) throw new Error('the gateway tells no event-loop lag');
  return Number(value) * 1000;
}
