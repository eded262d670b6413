import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { PROJECT } from '../test/support/project.ts';

/** Rows of cells. The first row is the header. */
export type Cells = readonly (readonly string[])[];

const NUMBER = /^([+−-]?[\d.,]+x?( %)?( \(.*\))?)?$/;
const [BEGIN, END] = ['<!-- measured: begin -->', '<!-- measured: end -->'];

/** Shows progress beside the figures, with the seconds since the start. */
export function progress(message: string): void {
  console.error(`${String(Math.round(performance.now() / 1000)).padStart(4)} s  ${message}`);
}

/** @param isPadded aligns the columns for a terminal */
export function markdownTable(cells: Cells, isPadded = false): string {
  const [header = [], ...body] = cells;
  const columns = header.map((_, column) => ({
    isNumeric: body.every((row) => NUMBER.test(row[column] ?? '')),
    width: isPadded ? Math.max(...cells.map((row) => row[column]?.length ?? 0)) : 0,
  }));
  const rule = columns.map(({ isNumeric }) => (isNumeric ? '---:' : '---'));
  const line = (row: readonly string[]) =>
    columns.map(({ isNumeric, width }, at) => (isNumeric ? row[at]?.padStart(width) : row[at]?.padEnd(width)));
  return [header, rule, ...body].map((row) => `| ${line(row).join(' | ')} |`).join('\n');
}

/** Replaces the text between the marks of a page, whose path is relative to the project. @throws when it has no marks */
export async function writeFigures(path: string, text: string): Promise<void> {
  const page = await readFile(join(PROJECT, path), 'utf8');
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin === -1 || end < begin) throw new Error(`${path} lacks ${BEGIN} or ${END}`);
  await writeFile(join(PROJECT, path), `${page.slice(0, begin + BEGIN.length)}\n\n${text}\n${page.slice(end)}`);
}

/** With a plus sign if files have changed since. "unknown" outside a checkout. */
export function commitOfCheckout(): string {
  try {
    const args = ['describe', '--always', '--exclude=*', '--dirty=+'];
    return execFileSync('git', args, { cwd: PROJECT, encoding: 'utf8' }).trim();
  } catch {
    return 'unknown';
  }
}

export const processors = (): string => `${cpus().length} cores of ${cpus()[0]?.model.trim() ?? 'unknown'}`;
