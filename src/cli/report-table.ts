import { formatUsd } from '../lib/money.ts';
import type { Sales } from '../report/sales.ts';
import { printable } from './printable.ts';

const COUNTS = ['requests', 'failed', 'characters'] as const;
const AMOUNTS = ['revenue', 'givenBack', 'held', 'upstreamCost', 'margin'] as const;
const TITLES = ['requests', 'failed', 'characters', 'revenue', 'given back', 'held', 'upstream cost', 'margin'];

/** Lines of a table with its numbers to the right. Amounts are in USD; `*` marks a cost that is not known of all. */
export function numbersTable(title: string, rows: readonly Sales[]): string[] {
  const cells = rows.map((row) => [
    printable(row.group),
    ...COUNTS.map((column) => String(row[column])),
    ...AMOUNTS.map((column) => formatUsd(row[column]) + (column === 'upstreamCost' && row.uncosted > 0n ? '*' : '')),
  ]);
  const lines = [[title, ...TITLES], ...cells];
  const widths = [title, ...TITLES].map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const table = lines.map((line) =>
    line
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  '),
  );
  const uncosted = rows.at(-1)?.uncosted ?? 0n;
  return uncosted === 0n ? table : [...table, `* What the upstream cost is not known of ${uncosted} requests.`];
}

/** One line of CSV (RFC 4180). A cell that a spreadsheet would take for a formula begins with an apostrophe. */
export const csvLine = (cells: readonly string[]): string => cells.map(csvCell).join(',');

function csvCell(text: string): string {
  const safe = /^[=+@\t\r]|^-(?!\d)/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
