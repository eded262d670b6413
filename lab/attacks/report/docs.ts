import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { withFigures } from '../../bench/report/docs.ts';
import { PROJECT } from '../../bench/targets/program.ts';

const RESULTS = join(PROJECT, 'lab/attacks/README.md');
const SECURITY = join(PROJECT, 'docs/security.md');

export async function writeDocs(results: string, sums: string): Promise<void> {
  for (const [page, text] of [
    [RESULTS, results],
    [SECURITY, sums],
  ] as const) {
    await writeFile(page, withFigures(await readFile(page, 'utf8'), text));
  }
}
