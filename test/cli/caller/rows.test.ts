import assert from 'node:assert/strict';
import { test } from 'tap';
import { rowsOf } from '../../../src/cli/caller/rows.ts';

const items = Array.from({ length: 10_000 }, (_, index) => ({ id: `v${index}`, name: 'x'.repeat(1_000) }));
const cells = ({ id, name }: { id: string; name: string }) => [id, name];

test('a long list is cut after 100 rows, and says how many more there are', async () => {
  const lines = rowsOf(items, { all: false }, cells, ['voice', 'name']);
  assert.equal(lines.length, 102);
  assert.equal(lines[0], 'voice  name');
  assert.equal(lines.at(-1), '9900 more; --all lists them.');
  assert.ok(lines.every((line) => line.length < 400));
});

test('a list can be read whole, and a short one says nothing more', async () => {
  assert.equal(rowsOf(items, { all: true }, cells).length, items.length);
  assert.deepEqual(
    rowsOf(items.slice(0, 1), { all: false }, ({ id }) => [`${id}\u001b[2J\n`, 'a']),
    ['v0[2J  a'],
  );
  assert.deepEqual(rowsOf([], { all: false }, cells), []);
});
