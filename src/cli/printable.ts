import { UNPRINTABLE } from '../lib/unprintable.ts';

const escapeUnits = (text: string): string =>
  Array.from({ length: text.length }, (_, index) => `\\u${text.charCodeAt(index).toString(16).padStart(4, '0')}`).join(
    '',
  );

/** The text on one line that is safe on a terminal: what is not printable is escaped as in JSON, a backslash too. */
export function printable(text: string): string {
  return text.replace(/\\/g, '\\\\').replace(/\n/g, '\\n').replace(UNPRINTABLE, escapeUnits);
}

/** JSON, indented, that is safe on a terminal and has the same value; amounts of micro-USD are numbers, below 2^53. */
export function printableJson(value: unknown): string {
  const lines = JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? Number(each) : each), 2).split('\n');
  return lines.map((line) => line.replace(UNPRINTABLE, escapeUnits)).join('\n');
}
