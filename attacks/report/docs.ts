import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { withFigures } from '../../bench/report/docs.ts';
import { PROJECT } from '../../bench/targets/program.ts';

const PAGE = join(PROJECT, 'docs/threats.md');

/** Writes the table into the page about threats, so that none of its numbers is typed by hand. */
export async function writeDocs(text: string): Promise<void> {
  await writeFile(PAGE, withFigures(await readFile(PAGE, 'utf8'), text));
}
