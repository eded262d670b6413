import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PROJECT } from '../targets/program.ts';
import { markdownTable } from './cells.ts';
import { plot } from './plot.ts';
import type { Results } from './results.ts';
import { tablesOf } from './tables.ts';

const PAGE = join(PROJECT, 'docs/performance.md');
const PLOT = join(PROJECT, 'docs/performance.svg');
const BEGIN = '<!-- measured: begin -->';
const END = '<!-- measured: end -->';

/** Writes a complete run's figures into the page about speed, so that none is typed by hand; throws for another run. */
export async function writeDocs(results: Results): Promise<void> {
  if (!results.isComplete) throw new Error('Only a complete run goes into the docs.');
  await writeFile(PAGE, withFigures(await readFile(PAGE, 'utf8'), figures(results)));
  await writeFile(PLOT, plot(results.throughput ?? []));
}

/** The page with other figures between its marks; throws when it has none. */
export function withFigures(page: string, text: string): string {
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin === -1 || end < begin) throw new Error(`${PAGE} lacks ${BEGIN} or ${END}`);
  return `${page.slice(0, begin + BEGIN.length)}\n\n${text}\n${page.slice(end)}`;
}

function figures(results: Results): string {
  const { cpu, cores, memoryGiB, system, node, postgres, commit, loadBefore } = results.machine;
  return [
    `Measured at ${commit} on ${cores} cores of ${cpu} with ${memoryGiB} GiB, ${system}, Node.js ${node.slice(1)}, ` +
      `PostgreSQL ${postgres}, load ${loadBefore.toFixed(2)} before the run, ${results.rounds} rounds, ` +
      `${results.minutes.toFixed(0)} minutes.\n`,
    '![Requests a second and CPU a request, beside other gateways](performance.svg)\n',
    ...tablesOf(results).map(markdownTable),
  ].join('\n');
}
