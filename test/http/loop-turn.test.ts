import assert from 'node:assert/strict';
import { test } from 'tap';
import { LoopTurn } from '../../src/http/loop-turn.ts';

/** Turns of an event loop that the test ends: each request of them takes so many milliseconds. */
function startLoop() {
  let now = 0;
  let end = () => {};
  const turn = new LoopTurn(
    () => now,
    (callback) => {
      end = callback;
    },
  );
  /** Tells how many of its requests were taken on before the turn was long. */
  return (requests: number, ms: number): number => {
    let taken = 0;
    for (let request = 0; request < requests; request++) {
      if (!turn.isLong()) taken += 1;
      now += ms;
    }
    end();
    return taken;
  };
}

test('requests that keep coming faster than they are begun make turns long, until they stop', async () => {
  const turn = startLoop();
  assert.deepEqual([turn(500, 0.5), turn(500, 0.5)], [500, 500], 'two long turns may be chance');
  assert.equal(turn(2000, 0.125), 100, 'the third takes on what 12.5 ms are enough for');
  for (let more = 0; more < 5; more++) turn(2000, 0.125);
  assert.equal(turn(2000, 0.125), 64, 'as few as may come together anyway');
  turn(10, 0.125);
  assert.equal(turn(2000, 0.125), 2000, 'one short turn ends it');
});

test('a pause is no overload: of the process, within a turn, or a core that is shared', async () => {
  const turn = startLoop();
  assert.equal(turn(3, 5_000), 3);
  assert.equal(turn(300, 0.1), 300);
  assert.equal(turn(3, 5_000), 3);
  for (let more = 0; more < 10; more++) assert.equal(turn(64, 20), 64, '64 callers with one request at a time');
});
