import type { DutyLine } from '../duties/measure-duties.ts';
import type { GrowthLine } from '../growth/growth.ts';
import { type LatencyLine, REQUESTS_PER_SECOND } from '../latency.ts';
import type { LongJobLine } from '../long-job.ts';
import type { MemoryLine } from '../memory.ts';
import type { OverloadLine } from '../overload.ts';
import type { Spread } from '../statistics.ts';
import { CONCURRENCY } from '../world.ts';
import { added, median, type Table, verdict, whole, wholeSpread } from './cells.ts';
import type { Line } from './comparison.ts';
import type { Results } from './results.ts';

/** Limits of the latency that the gateway adds to the upstream. */
const ADDED_P50_MS = 1.5;
const ADDED_P99_MS = 4;
/** Limit of the time to first byte, relative to the bare proxy. */
const ADDED_FIRST_BYTE_MS = 2;
/** Limit of a request's CPU time, relative to the smallest ledger. */
const GROWTH = 1.15;

export function tablesOf({
  throughput,
  latency,
  firstByte,
  overload,
  longJob,
  memory,
  growth,
  duties,
}: Results): Table[] {
  return [
    ...(throughput ? [throughputTable(throughput), ratioTable(throughput)] : []),
    ...(latency ? [latencyTable(latency)] : []),
    ...(firstByte ? [firstByteTable(firstByte)] : []),
    ...(overload ? [overloadTable(overload)] : []),
    ...(longJob ? [longJobTable(longJob)] : []),
    ...(memory ? [memoryTable(memory)] : []),
    ...(growth ? [growthTable(growth)] : []),
    ...(duties ? [dutyTable(duties)] : []),
  ];
}

const mebibytes = (bytes: number): string => whole(bytes / 1024 ** 2);

const throughputTable = (lines: readonly Line[]): Table => ({
  title: `Requests, ${CONCURRENCY} at a time`,
  cells: [
    ['target', 'requests/s (min–max)', 'p50 ms', 'p99 ms', 'CPU ms', 'PostgreSQL ms', 'RSS MiB', 'loop p99 ms'],
    ...lines.map((line) => [
      line.label,
      wholeSpread(line.requestsPerSecond),
      median(line.p50Ms, 1),
      median(line.p99Ms, 1),
      median(line.cpuMs, 3),
      line.postgresCpuMs.max > 0 ? median(line.postgresCpuMs, 3) : '',
      mebibytes(line.memory.median),
      median(line.eventLoopP99Ms, 1),
    ]),
  ],
});

const ratioTable = (lines: readonly Line[]): Table => ({
  title: 'Beside the peers',
  cells: [
    ['work', 'against', 'requests/s', 'asked', '', 'CPU', 'asked', ''],
    ...lines.flatMap(({ label, ratios }) =>
      ratios.map(({ against, rate, cpu, askedRate, askedCpu }) => [
        ...[label, against, `${rate.toFixed(2)}x`, `${askedRate}x`, verdict(rate >= askedRate)],
        ...[`${cpu.toFixed(2)}x`, `${askedCpu}x`, verdict(cpu <= askedCpu)],
      ]),
    ),
  ],
});

/** Only the gateway's flows without a chain have a target value. */
const isAsked = (name: string): boolean => /^(card|prepaid)(-|$)/.test(name);

function latencyTable(lines: readonly LatencyLine[]): Table {
  const upstream = lines[0] as LatencyLine;
  return {
    title: `${REQUESTS_PER_SECOND} requests a second over an upstream of 50 ms`,
    cells: [
      [
        ...['target', 'p50 ms', 'p99 ms', 'added p50', 'added p99', `asked ${ADDED_P50_MS} and ${ADDED_P99_MS}`],
        ...['loop p99 ms', 'GC ms/s', 'WAL syncs/s', 'sync ms'],
      ],
      ...lines.map(({ name, label, p50Ms, p99Ms, causes }) => {
        const [middle, tail] = [p50Ms.median - upstream.p50Ms.median, p99Ms.median - upstream.p99Ms.median];
        const isReached = middle <= ADDED_P50_MS && tail <= ADDED_P99_MS;
        return [
          ...[label, median(p50Ms, 1), median(p99Ms, 1)],
          ...(name === upstream.name ? ['', ''] : [added(middle), added(tail)]),
          isAsked(name) ? verdict(isReached) : '',
          ...[median(causes?.eventLoopP99Ms, 1), median(causes?.gcMsPerSecond, 1)],
          ...[median(causes?.walSyncsPerSecond, 0), median(causes?.walSyncMs, 2)],
        ];
      }),
    ],
  };
}

function firstByteTable(lines: readonly LatencyLine[]): Table {
  const bare = lines.find(({ name }) => name === 'bare') as LatencyLine;
  return {
    title: `First byte of audio that drips, ${REQUESTS_PER_SECOND} requests a second`,
    cells: [
      ['target', 'p50 ms', 'p99 ms', 'to the bare proxy', `asked ${ADDED_FIRST_BYTE_MS} at most`],
      ...lines.map(({ name, label, firstByteP50Ms, firstByteP99Ms }) => {
        const more = firstByteP50Ms.median - bare.firstByteP50Ms.median;
        return [
          ...[label, median(firstByteP50Ms, 1), median(firstByteP99Ms, 1), name === bare.name ? '' : added(more)],
          isAsked(name) ? verdict(more <= ADDED_FIRST_BYTE_MS) : '',
        ];
      }),
    ],
  };
}

const times = ({ median, min, max }: Spread): string => `${median.toFixed(2)}x (${min.toFixed(2)}–${max.toFixed(2)})`;

const overloadTable = (lines: readonly OverloadLine[]): Table => ({
  title: 'Overload',
  cells: [
    [
      ...['load', 'asked/s', 'sent', 'paid answers/s', 'of the best', 'p50 ms', 'p99 ms', 'of p99 at 0.8x'],
      ...['refused: paid', 'challenges', 'guesses', 'charged − served'],
    ],
    ...lines.map((line) => [
      ...[line.label, whole(line.askedPerSecond), `${(line.sent * 100).toFixed(0)} %`, whole(line.servedPerSecond)],
      times(line.ofBest),
      ...[whole(line.p50Ms), whole(line.p99Ms), line.ofP99 ? times(line.ofP99) : ''],
      ...[line.shed.paid, line.shed.challenge, line.shed.guess].map((share) => `${(share * 100).toFixed(0)} %`),
      String(line.chargedButNotServed),
    ]),
  ],
});

const longJobTable = (line: LongJobLine): Table => ({
  title: 'A job of 100,000 characters',
  cells: [
    ['seconds', 'characters per CPU second (min–max)', 'per PostgreSQL second'],
    [median(line.seconds, 1), wholeSpread(line.charactersPerCpuSecond), wholeSpread(line.charactersPerPostgresSecond)],
  ],
});

const memoryTable = (lines: readonly MemoryLine[]): Table => ({
  title: 'Memory of the gateway, in MiB',
  cells: [
    ['when', 'RSS', 'V8 heap used', 'V8 heap', 'external'],
    ...lines.map(({ label, resident, heapUsed, heap, external }) => [
      label,
      ...[resident, heapUsed, heap, external].map(mebibytes),
    ]),
  ],
});

function growthTable(lines: readonly GrowthLine[]): Table {
  const cpuOf = ({ cpuMs, postgresCpuMs }: Line) => cpuMs.median + postgresCpuMs.median;
  const [smallest] = lines as [GrowthLine];
  return {
    title: 'Cost in a growing ledger',
    cells: [
      [
        ...['work', 'transfers before', 'after', 'requests/s (min–max)', 'CPU ms', 'PostgreSQL ms', 'of the smallest'],
        ...[`asked ${GROWTH}x at most`, 'audit s'],
      ],
      ...smallest.rows.flatMap((first, index) =>
        lines.map(({ before, after, auditSeconds, rows }, at) => {
          const row = rows[index] as Line;
          const ratio = cpuOf(row) / cpuOf(first);
          return [
            ...[row.label, whole(before), whole(after), wholeSpread(row.requestsPerSecond)],
            ...[median(row.cpuMs, 3), median(row.postgresCpuMs, 3), `${ratio.toFixed(2)}x`],
            ...[at === 0 || at === lines.length - 1 ? '' : verdict(ratio <= GROWTH), auditSeconds.toFixed(1)],
          ];
        }),
      ),
    ],
  };
}

const microseconds = (value: Spread | undefined): string =>
  value ? wholeSpread({ median: value.median * 1000, min: value.min * 1000, max: value.max * 1000 }) : '';

/** The first row of a flow is its floor; the last one of the table is the whole request. */
function dutyTable(lines: readonly DutyLine[]): Table {
  const flows = [...new Set(lines.map(({ flow }) => flow))];
  const of = (flow: string) => lines.filter((line) => line.flow === flow);
  const duties = [...new Set([...of('direct'), ...lines].map(({ duty }) => duty))];
  const found = (duty: string, flow: string) => of(flow).find((line) => line.duty === duty);
  return {
    title: "CPU of each duty in the gateway, µs a request (min–max of the rounds' differences)",
    cells: [
      ['duty', ...flows],
      ...duties.map((duty) => [
        duty,
        ...flows.map((flow) => {
          const line = found(duty, flow);
          return microseconds(line?.addedMs ?? line?.cpuMs);
        }),
      ]),
      ['all', ...flows.map((flow) => microseconds(of(flow).at(-1)?.cpuMs))],
      ['PostgreSQL', ...flows.map((flow) => microseconds(of(flow).at(-1)?.postgresCpuMs))],
    ],
  };
}
