import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { mock } from 'node:test';
import { type Test, test } from 'tap';
import { RefusalPace } from '../../src/http/refusal-pace.ts';

/** What it takes to write a refusal, in milliseconds. */
const COST_MS = 0.0625;

/** Time passes while refusals are written, and by `pass`, which counts from the last time on. */
function start(t: Test, { hasTime = false } = {}) {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  const clock = { passed: 0, wasIdle: 0, now: () => clock.passed, idle: () => clock.wasIdle };
  const written: ServerResponse[] = [];
  const write = (response: ServerResponse) => {
    written.push(response);
    clock.passed += COST_MS;
  };
  const pace = new RefusalPace(write, () => hasTime, clock);
  const refuse = (count: number, destroyed = false) => {
    const responses = Array.from({ length: count }, () => ({ destroyed }) as ServerResponse);
    for (const response of responses) pace.refuse(response);
    return responses;
  };
  /** The event loop's turns take so long each, and are idle for so long of that. */
  let at = 0;
  const pass = (milliseconds: number, idle = 0) => {
    at += milliseconds;
    clock.passed = at;
    clock.wasIdle += idle;
    mock.timers.tick(10);
  };
  return { written, pace, refuse, pass };
}

test('a few refusals are written at once, the others in a twentieth of the time, in their turn, and none to who has left', (t) => {
  const { written, refuse, pass } = start(t);
  const few = refuse(8);
  const more = [...refuse(5), ...refuse(3, true).slice(3), ...refuse(25)];
  assert.deepEqual(written, few, 'the others wait');
  pass(10);
  assert.equal(written.length, 8 + 8);
  pass(20);
  assert.equal(written.length, 8 + 8 + 16);
  pass(10);
  assert.deepEqual(written, [...few, ...more]);
  t.end();
});

test('half of the time in which the process has nothing to do is for refusals, unless somebody waits who is to be served', (t) => {
  for (const { hasTime, told } of [
    { hasTime: true, told: 8 + 8 + 40 },
    { hasTime: false, told: 8 + 8 },
  ]) {
    const { written, refuse, pass } = start(t, { hasTime });
    refuse(1000);
    pass(10, 5);
    assert.equal(written.length, told);
    mock.timers.reset();
  }
  t.end();
});

test('a turn that takes a second is not made good afterwards', (t) => {
  const { written, refuse, pass } = start(t);
  refuse(1000);
  pass(1000);
  assert.equal(written.length, 8 + 160);
  t.end();
});

test('a refusal that costs more than there is time for is made good later', (t) => {
  const { written, refuse, pass } = start(t);
  refuse(12);
  pass(1);
  assert.equal(written.length, 9, 'one is begun while any time is left');
  pass(0.125);
  assert.equal(written.length, 9);
  pass(1);
  assert.equal(written.length, 10);
  t.end();
});

test('what waits is bounded, and written at the end', (t) => {
  const { written, pace, refuse } = start(t);
  const [oldest] = refuse(8 + 8_192).slice(8);
  assert.equal(written.length, 8);
  refuse(1);
  assert.deepEqual(written.slice(8), [oldest], 'the oldest makes room for one more');
  pace.close();
  assert.equal(written.length, 8 + 8_192 + 1);
  t.end();
});
