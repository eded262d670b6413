import { printable } from './printable.ts';

/** Cells beside each other, each filled up to its width; what is wider, or has no width, is printed as it is. */
export const tableLine = (widths: readonly number[], cells: readonly string[]): string =>
  cells.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  ');

/** Likewise, on one line that is safe on a terminal, whoever has written the cells. */
export const printableLine = (widths: readonly number[], cells: readonly string[]): string =>
  tableLine(widths, cells.map(printable)).trimEnd();
