/** docs/architecture.md shows the folders of src as .dependency-cruiser.cjs ranks them. */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'tap';

const PROJECT = new URL('../../', import.meta.url);
const read = (path: string): Promise<string> => readFile(new URL(path, PROJECT), 'utf8');

const [, ranked = ''] = /^const LAYERS = (\[.*?^\]);$/ms.exec(await read('.dependency-cruiser.cjs')) ?? [];
const layers = [...ranked.matchAll(/'([\w-]+)'/g)].map(([, name]) => name as string);
const nameOf = (path: string): string => path.replace(/^src\//, '').replace(/\.ts$|\/$/, '');

test('docs/architecture.md: its table has each folder of src, in the order of the layers', async () => {
  const text = await read('docs/architecture.md');
  const rows = [...text.matchAll(/^\| `(src\/[\w-]+(?:\/|\.ts))` \| .+ \| .+ \|$/gm)].map(([, path]) => path as string);
  assert.deepEqual(rows.map(nameOf), layers);
  const entries = await readdir(new URL('src/', PROJECT), { withFileTypes: true });
  const there = entries.map((entry) => `src/${entry.name}${entry.isDirectory() ? '/' : ''}`);
  assert.deepEqual(rows.toSorted(), there.sort());
});
