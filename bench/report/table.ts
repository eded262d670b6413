import type { Spread } from '../statistics.ts';
import type { Line, Ratio } from './comparison.ts';

/** A table as rows of cells, the first of which names the columns. */
export type Cells = readonly (readonly string[])[];

export const throughputCells = (lines: readonly Line[]): Cells => [
  [
    'target',
    'requests/s (min–max)',
    'p50 ms',
    'p99 ms',
    'CPU ms',
    'PostgreSQL ms',
    'RSS MiB',
    'loop p99 ms',
    'against',
    'requests/s',
    'CPU',
  ],
  ...lines.flatMap((line) => {
    const [first, ...others] = line.ratios;
    return [
      [
        line.label,
        `${whole(line.requestsPerSecond.median)} (${whole(line.requestsPerSecond.min)}–${whole(line.requestsPerSecond.max)})`,
        fixed(line.p50Ms, 1),
        fixed(line.p99Ms, 1),
        fixed(line.cpuMs, 3),
        fixed(line.postgresCpuMs, 3),
        whole(line.memory.median / 1024 ** 2),
        fixed(line.eventLoopP99Ms, 1),
        ...ratioCells(first),
      ],
      ...others.map((ratio) => [...Array(8).fill(''), ...ratioCells(ratio)]),
    ];
  }),
];

function ratioCells(ratio: Ratio | undefined): string[] {
  if (!ratio) return ['', '', ''];
  const { against, rate, cpu, askedRate, askedCpu } = ratio;
  return [
    against,
    `${rate.toFixed(2)}x of ${askedRate}x ${rate >= askedRate ? 'reached' : 'missed'}`,
    `${cpu.toFixed(2)}x of ${askedCpu}x ${cpu <= askedCpu ? 'reached' : 'missed'}`,
  ];
}

const whole = (value: number): string => Math.round(value).toLocaleString('en-US');

const fixed = (value: Spread | undefined, digits: number): string => value?.median.toFixed(digits) ?? '';

/** For a terminal: columns of equal width, numbers to the right. */
export function plainTable(cells: Cells): string {
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => (row[column] ?? '').length)));
  return cells
    .map((row) =>
      row
        .map((cell, column) =>
          /^[\d.,]+( |$)/.test(cell) ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0),
        )
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
