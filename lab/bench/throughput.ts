import { type Cells, progress } from '../figures.ts';
import type { Expected } from './load/connection.ts';
import type { LoadResult, PartResult } from './load/main.ts';
import { isSigned, type Plan } from './load/requests.ts';
import { planOf, type Row } from './rows.ts';

import type { Setup } from './setup.ts';
import { mebibytes, quantile, type Spread, spread, verdict, wholeSpread } from './statistics.ts';
import { eventLoopP99Ms, readMetrics } from './targets.ts';
import { AT_ONCE, AUDIO_BYTES, CONCURRENCY } from './world.ts';

/** A row whose target has compiled its hot code. */
export interface Prepared {
  readonly row: Row;
  readonly plan: Plan;
  readonly expected: Expected;
  /** Requests a second, of the fastest round so far. */
  rate: number;
}

/** Ends after this many requests or seconds, whichever is first. */
export interface WarmUp {
  readonly requests: number;
  readonly seconds: number;
}

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
  /** In bytes. */
  readonly memory: number;
  /** 99th percentile of the gateway's event-loop delay. */
  readonly eventLoopP99Ms: number | undefined;
}

/** By name of the row. */
export type Rounds = ReadonlyMap<string, readonly Round[]>;

/** A round may be this many times faster than the fastest one so far, which at first is assumed to be the least. */
const RESERVE = 2;
const LEAST_PER_SECOND = 1_000;

/**
 * Samples each target's response, then sends enough requests for V8 to compile the hot code.
 * @throws when a response is not as expected
 */
export async function prepareRows(setup: Setup, rows: readonly Row[], warmUp: WarmUp): Promise<Prepared[]> {
  const prepared: Prepared[] = [];
  for (const row of rows) {
    progress(`warming up: ${row.label}`);
    const work = await learn(setup, row);
    const { port, pid } = setup.target(row.target);
    const { parts, seconds } = await setup.load(row, {
      parts: [{ name: row.name, share: 1, ...work }],
      ...{ port, connections: CONCURRENCY, warmUpSeconds: 0, seconds: warmUp.seconds, most: warmUp.requests },
      targetPid: pid,
    });
    prepared.push({ row, ...work, rate: (parts[row.name] as PartResult).servedInAll / seconds });
  }
  return prepared;
}

/** Samples the target's response. */
export async function learn(setup: Setup, row: Row): Promise<Pick<Prepared, 'plan' | 'expected'>> {
  const plan = planOf(row, setup.upstream);
  const audio = { status: 200, bytes: AUDIO_BYTES };
  if (row.work !== 'challenge' && row.work !== 'paid') return { plan, expected: audio };
  const headers = { 'content-type': 'application/json' };
  const url = `http://127.0.0.1:${setup.target(row.target).port}${plan.path}`;
  const answer = await fetch(url, { method: 'POST', headers, body: plan.body });
  const { byteLength: bytes } = await answer.arrayBuffer();
  const encoded = answer.headers.get('payment-required');
  if (answer.status !== 402 || encoded === null) throw new Error(`status ${answer.status} instead of a challenge`);
  if (row.work === 'challenge') return { plan, expected: { status: 402, bytes } };
  const challenge = JSON.parse(Buffer.from(encoded, 'base64').toString());
  return { plan: { ...plan, payment: { by: 'direct', challenge } }, expected: audio };
}

/**
 * Runs each row once in each round, so that other work on the machine affects all rows alike. Each round starts with
 * another row.
 */
export async function interleave(
  what: string,
  rows: readonly Prepared[],
  rounds: number,
  measure: (row: Prepared) => Promise<void>,
): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < rows.length; turn++) {
      const each = rows[(round + turn) % rows.length] as Prepared;
      progress(`${what}, round ${round + 1} of ${rounds}: ${each.row.label}`);
      await measure(each);
    }
  }
}

/** Each round opens new connections. */
export async function measureThroughput(setup: Setup, rows: readonly Prepared[], pace: Pace): Promise<Rounds> {
  await setup.speak(AT_ONCE);
  const measured = new Map(rows.map(({ row }) => [row.name, [] as Round[]]));
  await interleave('throughput', rows, pace.rounds, async (each) => {
    const round = await measureRound(setup, each, pace);
    measured.get(each.row.name)?.push(round);
    each.rate = Math.max(each.rate, round.requestsPerSecond);
  });
  return measured;
}

async function measureRound(setup: Setup, { row, plan, expected, rate }: Prepared, pace: Pace): Promise<Round> {
  const { warmUpSeconds, seconds } = pace;
  const { port, pid, adminPort } = setup.target(row.target);
  const isOnPostgres = /^(ours|floor|duty-.*)$/.test(row.target);
  if (adminPort !== undefined) await readMetrics(adminPort);
  const result: LoadResult = await setup.load(row, {
    parts: [{ name: row.name, share: 1, plan, expected }],
    ...{ port, connections: CONCURRENCY, warmUpSeconds, seconds, targetPid: pid },
    ...(isSigned(plan) && {
      most: Math.ceil(RESERVE * Math.max(LEAST_PER_SECOND, rate) * (warmUpSeconds + seconds)),
    }),
    ...(isOnPostgres && { postgresPid: setup.books.postmaster }),
  });
  const { served, latenciesMs } = result.parts[row.name] as PartResult;
  return {
    requestsPerSecond: served / result.seconds,
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
    memory: result.memory,
    cpuMs: result.targetCpuMs / served,
    postgresCpuMs: result.postgresCpuMs / served,
    eventLoopP99Ms: adminPort === undefined ? undefined : eventLoopP99Ms(await readMetrics(adminPort)),
  };
}

export const spreadOf = (rounds: readonly Round[] = [], pick: (round: Round) => number): Spread =>
  spread(rounds.map(pick));

export function throughputCells(rows: readonly Row[], rounds: Rounds): Cells {
  const lines = rows.map(({ name, label }) => {
    const median = (pick: (round: Round) => number) => spreadOf(rounds.get(name), pick).median;
    const postgresMs = median((round) => round.postgresCpuMs);
    const loopMs = median((round) => round.eventLoopP99Ms ?? Number.NaN);
    return [
      label,
      wholeSpread(spreadOf(rounds.get(name), (round) => round.requestsPerSecond)),
      median((round) => round.p50Ms).toFixed(1),
      median((round) => round.p99Ms).toFixed(1),
      median((round) => round.cpuMs).toFixed(3),
      postgresMs > 0 ? postgresMs.toFixed(3) : '',
      mebibytes(median((round) => round.memory)),
      Number.isNaN(loopMs) ? '' : loopMs.toFixed(1),
    ];
  });
  const header = ['target', 'requests/s (min–max)', 'p50 ms', 'p99 ms', 'CPU ms', 'PostgreSQL ms', 'RSS MiB'];
  return [[...header, 'loop p99 ms'], ...lines];
}

/** Medians of the ratios in each round. */
export function ratioCells(rows: readonly Row[], rounds: Rounds): Cells {
  const lines = rows.flatMap(({ name, label, asked }) => {
    const peer = rows.find((row) => row.name === asked?.against);
    if (!asked || !peer) return [];
    const others = rounds.get(peer.name) ?? [];
    const ratio = (pick: (round: Round) => number) =>
      spread((rounds.get(name) ?? []).map((round, index) => pick(round) / pick(others[index] as Round))).median;
    const [rate, cpu] = [ratio((round) => round.requestsPerSecond), ratio((round) => round.cpuMs)];
    return [
      [
        ...[label, peer.label, `${rate.toFixed(2)}x`, `${asked.rate}x`, verdict(rate >= asked.rate)],
        ...[`${cpu.toFixed(2)}x`, `${asked.cpu}x`, verdict(cpu <= asked.cpu)],
      ],
    ];
  });
  return [['work', 'against', 'requests/s', 'asked', '', 'CPU', 'asked', ''], ...lines];
}
