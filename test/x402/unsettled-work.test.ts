import assert from 'node:assert/strict';
import test from 'node:test';
import { UnsettledWork } from '../../src/x402/unsettled-work.ts';

test('R21b: running and lost work count, settled work does not, and enough of it is too much', async (t) => {
  t.mock.timers.enable({ apis: ['Date'] });
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const work = new UnsettledWork(60);
  const settled = work.begin();
  const lost = work.begin();
  now = 20_000;
  assert.equal(Math.round(work.seconds), 40);
  settled(true);
  lost(false);
  lost(true);
  assert.equal(Math.round(work.seconds), 20);
  work.begin();
  now = 59_000;
  assert.equal(work.isFull, false);
  now = 60_001;
  assert.equal(work.isFull, true);
});

test('R21b: lost work is forgotten after an hour', (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const work = new UnsettledWork(60);
  const end = work.begin();
  now = 61_000;
  end(false);
  assert.equal(work.isFull, true);
  now += 3_600_000;
  assert.equal(work.isFull, false);
});
