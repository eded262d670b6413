import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';
import { ATTACKS } from '../../attacks/attacks/all.ts';

const PAGE = new URL('../../docs/threats.md', import.meta.url);

test('docs/threats.md: the table side by side has the attacks that there are, and nothing goes wrong at ours', async () => {
  const [, table = ''] = (await readFile(PAGE, 'utf8')).split('<!-- measured: begin -->');
  const rows = table.split('\n').filter((line) => /^\| (?!attack or fault|---|\*\*)/.test(line));
  const cells = rows.map((row) => row.slice(2, -2).split(' | '));
  assert.deepEqual(
    cells.map(([name]) => name),
    ATTACKS.map(({ name }) => name),
  );
  for (const [name, ours] of cells) assert.equal(ours, '0 · 0 · 0 · 0 · 0 · 0', name);
});

test('attacks have names of their own', async () => {
  const names = ATTACKS.map(({ name }) => name);
  assert.deepEqual([...new Set(names)], names);
});
