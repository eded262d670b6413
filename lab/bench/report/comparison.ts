import type { Row } from '../rows.ts';
import { type Spread, spread } from '../statistics.ts';
import type { Round, Rounds } from '../throughput.ts';

/** Ratios to another row: the median of each round's ratio. */
export interface Ratio {
  readonly against: string;
  readonly rate: number;
  readonly cpu: number;
  readonly askedRate: number;
  readonly askedCpu: number;
}

export interface Line {
  readonly name: string;
  readonly label: string;
  readonly isOwn: boolean;
  readonly isChallenge: boolean;
  readonly requestsPerSecond: Spread;
  readonly p50Ms: Spread;
  readonly p99Ms: Spread;
  readonly cpuMs: Spread;
  readonly postgresCpuMs: Spread;
  /** In bytes. */
  readonly memory: Spread;
  readonly eventLoopP99Ms: Spread | undefined;
  readonly ratios: readonly Ratio[];
}

export function linesOf(rows: readonly Row[], rounds: Rounds): Line[] {
  const of = (name: string): readonly Round[] => rounds[name] ?? [];
  const labelOf = (name: string) => rows.find((row) => row.name === name)?.label ?? name;
  return rows.map(({ name, label, target, work, asked = [] }) => {
    const isOwn = target === 'ours';
    const values = (pick: (round: Round) => number) => spread(of(name).map(pick));
    const ratio = (against: string, pick: (round: Round) => number) =>
      spread(of(name).map((round, index) => pick(round) / pick(of(against)[index] as Round))).median;
    return {
      ...{ name, label, isOwn, isChallenge: work === 'challenge' },
      requestsPerSecond: values((round) => round.requestsPerSecond),
      p50Ms: values((round) => round.p50Ms),
      p99Ms: values((round) => round.p99Ms),
      cpuMs: values((round) => round.cpuMs),
      postgresCpuMs: values((round) => round.postgresCpuMs),
      memory: values((round) => round.memory),
      eventLoopP99Ms: isOwn ? values((round) => round.eventLoopP99Ms as number) : undefined,
      ratios: asked
        .filter(({ against }) => against in rounds)
        .map(({ against, rate, cpu }) => ({
          against: labelOf(against),
          rate: ratio(against, (round) => round.requestsPerSecond),
          cpu: ratio(against, (round) => round.cpuMs),
          ...{ askedRate: rate, askedCpu: cpu },
        })),
    };
  });
}
