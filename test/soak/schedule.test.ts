import assert from 'node:assert/strict';
import { test } from 'tap';
import { FAULTS } from '../../soak/faults/faults.ts';
import { turnOf } from '../../soak/faults/schedule.ts';

const namesOf = (seed: string, number: number) => turnOf(seed, number).faults.map(({ name }) => name);

test('what breaks in a turn follows from the seed and its number alone', async () => {
  const first = Array.from({ length: 200 }, (_, number) => namesOf('a', number));
  const backwards = Array.from({ length: 200 }, (_, index) => namesOf('a', 199 - index)).reverse();
  assert.deepEqual(backwards, first);
  assert.notDeepEqual(
    Array.from({ length: 200 }, (_, number) => namesOf('b', number)),
    first,
  );
});

test('two faults of a turn never break the same thing, and each fault has its turn', async () => {
  const drawn = new Set<string>();
  for (let number = 0; number < 80_000; number++) {
    const { faults } = turnOf('turns', number);
    assert.equal(new Set(faults.map(({ target }) => target)).size, faults.length);
    for (const { name } of faults) drawn.add(name);
  }
  assert.deepEqual([...drawn].sort(), [...new Set(FAULTS.map(({ name }) => name))].sort());
  assert.equal(drawn.size, FAULTS.length);
});

test('gateways stand still between capture and delivery again and again, which is what the fence is for', async () => {
  const turns = Array.from({ length: 1000 }, (_, number) => namesOf('fence', number));
  const count = turns.flat().filter((name) => name.endsWith('stands still at "hold captured"')).length;
  assert.ok(count > 10, `${count} in 1000 turns`);
});
