import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PROJECT } from '../targets/program.ts';
import { markdownTable } from './cells.ts';
import type { Results } from './results.ts';
import { tablesOf } from './tables.ts';

const PAGE = 'docs/performance.md';
const BEGIN = '<!-- measured: begin -->';
const END = '<!-- measured: end -->';

/** Writes the figures of a complete run to docs/performance.md. @throws for any other run */
export async function writeDocs(results: Results): Promise<void> {
  if (!results.isComplete) throw new Error('Only a complete run goes into the docs.');
  await writeFigures(PAGE, figures(results));
}

/** Replaces the text between the marks of a page, whose path is relative to the project. @throws when it has no marks */
export async function writeFigures(path: string, text: string): Promise<void> {
  const page = await readFile(join(PROJECT, path), 'utf8');
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin === -1 || end < begin) throw new Error(`${path} lacks ${BEGIN} or ${END}`);
  await writeFile(join(PROJECT, path), `${page.slice(0, begin + BEGIN.length)}\n\n${text}\n${page.slice(end)}`);
}

function figures(results: Results): string {
  const { cpu, cores, memoryGiB, system, node, postgres, commit, loadBefore } = results.machine;
  return [
    `Measured at ${commit} on ${cores} cores of ${cpu} with ${memoryGiB} GiB, ${system}, Node.js ${node.slice(1)}, ` +
      `PostgreSQL ${postgres}, load ${loadBefore.toFixed(2)} before the run, ${results.rounds} rounds, ` +
      `${results.minutes.toFixed(0)} minutes.\n`,
    ...tablesOf(results).map(markdownTable),
  ].join('\n');
}
