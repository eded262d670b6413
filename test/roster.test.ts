import assert from 'node:assert/strict';
import { test } from 'tap';
import { Roster } from '../src/lib/roster.ts';

test('a roster holds what was added and not taken out, in whatever order that comes', async () => {
  const roster = new Roster<number>();
  const leave = [1, 2, 3, 4].map((value) => roster.add(value));
  const members = () => [...roster].sort();
  leave[0]?.();
  assert.deepEqual(members(), [2, 3, 4]);
  leave[3]?.();
  leave[3]?.();
  assert.deepEqual(members(), [2, 3]);
  const leaveFive = roster.add(5);
  leave[0]?.();
  assert.deepEqual(members(), [2, 3, 5]);
  for (const value of roster) if (value === 2) leave[1]?.();
  leave[2]?.();
  leaveFive();
  assert.equal(roster.size, 0);
});
