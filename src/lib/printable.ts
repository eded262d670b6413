import { formatUsd, MICRO_USD_PER_CENT } from './money.ts';
import { UNPRINTABLE } from './service-words.ts';

const escapeUnits = (text: string): string =>
  Array.from({ length: text.length }, (_, index) => `\\u${text.charCodeAt(index).toString(16).padStart(4, '0')}`).join(
    '',
  );

/** One line that is safe on a terminal: backslashes and unprintable characters are escaped as in JSON. */
export function printable(text: string): string {
  return text.replace(/\\/g, '\\\\').replace(/\n/g, '\\n').replace(UNPRINTABLE, escapeUnits);
}

/** JSON that is safe on a terminal. Amounts in micro-USD become numbers; they are below 2^53. @param indent 0 for a line */
export function printableJson(value: unknown, indent = 2): string {
  const text = JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? Number(each) : each), indent);
  return text
    .split('\n')
    .map((line) => line.replace(UNPRINTABLE, escapeUnits))
    .join('\n');
}

export const tableLine = (widths: readonly number[], cells: readonly string[]): string =>
  cells.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  ');

export const printableLine = (widths: readonly number[], cells: readonly string[]): string =>
  tableLine(widths, cells.map(printable)).trimEnd();

/** Amounts are printed in US dollars, also within a cell: `amountMicroUsd` or `amountCents` becomes `amountUsd`. */
export function tableLines(records: readonly object[], indent = ''): string[] {
  if (records.length === 0) return [];
  const rows = records.map((record) => Object.fromEntries(Object.entries(record).map(inUsd)));
  const heads = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cells = rows.map((row) => heads.map((head) => printable(cellOf(row[head]))));
  const lines = [heads, ...cells];
  const widths = heads.map((_, column) => lines.reduce((most, line) => Math.max(most, line[column]?.length ?? 0), 0));
  return lines.map((line) => `${indent}${tableLine(widths, line).trimEnd()}`);
}

function inUsd([name, value]: [string, unknown]): [string, unknown] {
  const [, amount, unit] = /^(.+)(MicroUsd|Cents)$/.exec(name) ?? [];
  if (unit === undefined || typeof value === 'string') return [name, value];
  const microUsd = (given: bigint) => (unit === 'Cents' ? given * MICRO_USD_PER_CENT : given);
  return [`${amount}Usd`, value === null ? null : formatUsd(microUsd(BigInt(value as bigint | number)))];
}

function cellOf(value: unknown): string {
  const isRecord = typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
  return textOf(isRecord ? Object.fromEntries(Object.entries(value).map(inUsd)) : value);
}

/** RFC 4180, with the columns of all records. Each is one line that is safe on a terminal. */
export function csvLines(records: readonly object[]): string[] {
  const columns = [...new Set(records.flatMap((record) => Object.keys(record)))];
  return [csvLine(columns), ...records.map((record) => csvRow(columns, record))];
}

export const csvRow = (columns: readonly string[], record: object): string =>
  csvLine(columns.map((column) => textOf((record as Record<string, unknown>)[column])));

export const csvLine = (cells: readonly string[]): string => cells.map(csvCell).join(',');

/** The apostrophe keeps spreadsheets from evaluating a cell as a formula. */
function csvCell(text: string): string {
  const shown = printable(text);
  const safe = /^[=+@]|^-(?!\d)/.test(shown) ? `'${shown}` : shown;
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (value instanceof Date) return value.toISOString();
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
