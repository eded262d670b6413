import type { Spread } from '../statistics.ts';

/** Rows of cells. The first row is the header. */
export interface Table {
  readonly title: string;
  readonly cells: readonly (readonly string[])[];
}

export const whole = (value: number): string => Math.round(value).toLocaleString('en-US');

/** Empty without a measurement. */
export const median = (value: Spread | undefined, digits: number): string => value?.median.toFixed(digits) ?? '';

export const wholeSpread = ({ median: middle, min, max }: Spread): string =>
  `${whole(middle)} (${whole(min)}–${whole(max)})`;

/** With a sign. */
export const added = (ms: number): string => `${ms < 0 ? '−' : '+'}${Math.abs(ms).toFixed(1)}`;

export const verdict = (isReached: boolean): string => (isReached ? 'reached' : 'missed');

const NUMBER = /^[+−]?[\d.,]+(x| \(.*\))?$/;

const numeric = ([header = [], ...body]: Table['cells']): boolean[] =>
  header.map((_, column) => body.every((row) => !row[column] || NUMBER.test(row[column])));

/** For a terminal: aligned columns, numbers to the right. */
export function plainTable({ title, cells }: Table): string {
  const columns = numeric(cells).map((isNumeric, column) => ({
    isNumeric,
    width: Math.max(...cells.map((row) => row[column]?.length ?? 0)),
  }));
  const lines = cells.map((row) =>
    columns
      .map(({ isNumeric, width }, column) => (isNumeric ? row[column]?.padStart(width) : row[column]?.padEnd(width)))
      .join('  ')
      .trimEnd(),
  );
  return `${title}\n\n${lines.join('\n')}\n`;
}

export function markdownTable({ title, cells }: Table): string {
  const line = (row: readonly string[]) => `| ${row.join(' | ')} |`;
  const rule = numeric(cells).map((isNumeric) => (isNumeric ? '---:' : '---'));
  const [header = [], ...body] = cells;
  return `### ${title}\n\n${[header, rule, ...body].map(line).join('\n')}\n`;
}
