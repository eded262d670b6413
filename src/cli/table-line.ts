/** Cells beside each other, each filled up to its width; what is wider, or has no width, is printed as it is. */
export const tableLine = (widths: readonly number[], cells: readonly string[]): string =>
  cells.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  ');
