import assert from 'node:assert/strict';
import { test } from 'tap';
import { firstTurn } from '../../soak/tail.ts';

const struck = (number: number, from: number, until: number) => ({ name: 'any', number, from, until, buries: [] });

test('the faults of a shorter run begin with the first turn of which something was still broken', async () => {
  // Turn 4 broke two things, turn 5 could break nothing here.
  const faults = [struck(3, 0, 10), struck(4, 20, 30), struck(4, 20, 45), struck(6, 50, 60)];
  for (const [begin, turn] of [
    [0, 3],
    [11, 4],
    [40, 4],
    [46, 6],
    [61, 7],
  ] as const) {
    assert.equal(firstTurn(faults, begin, 3), turn, `from ${begin} ms on`);
  }
  assert.equal(firstTurn([], 0, 8), 8);
});
