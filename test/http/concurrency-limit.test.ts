import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { test } from 'tap';
import { arrivalOf, ConcurrencyLimit } from '../../src/http/concurrency-limit.ts';
import { WorkInProgress } from '../../src/lib/work-in-progress.ts';

const BOUNDS = {
  ...{ leastAtOnce: 2, mostAtOnce: 8 },
  ...{ patienceMs: 100, idlePatienceMs: 1_000, leastWaiting: 4, mostWaiting: 50 },
};
const SAMPLE_MS = 50;

function start() {
  const clock = { passed: 0, wasIdle: 0, now: () => clock.passed, idle: () => clock.wasIdle };
  const work = new WorkInProgress();
  const limit = new ConcurrencyLimit(BOUNDS, work, clock);
  const [begun, refused, left] = [[], [], []] as [string[], string[], string[]];
  const all = new Map<string, ReturnType<typeof exchange>>();
  const enter = (...names: string[]) => {
    for (const name of names) {
      const { request, response } = exchange();
      all.set(name, { request, response });
      limit.enter(request as unknown as IncomingMessage, response as unknown as ServerResponse, {
        begin: () => void begun.push(name),
        refuse: () => void refused.push(name),
        left: () => void left.push(name),
      });
    }
  };
  const of = (name: string) => all.get(name) as ReturnType<typeof exchange>;
  const leave = (...names: string[]) => {
    for (const name of names) of(name).response.emit('close');
  };
  const handOver = (name: string) => limit.handOver(of(name).request as unknown as IncomingMessage);
  /** So many samples, between which the process has nothing to do for a share of the time. */
  const sample = (count: number, idleShare = 0) => {
    for (let index = 0; index < count; index++) {
      clock.passed += SAMPLE_MS;
      clock.wasIdle += SAMPLE_MS * idleShare;
      limit.sample();
    }
  };
  return { clock, work, limit, begun, refused, left, enter, leave, of, handOver, sample };
}

const exchange = () => ({
  request: { complete: true, socket: { destroyed: false, writableEnded: false } },
  response: new EventEmitter(),
});

const many = (name: string, count: number) => Array.from({ length: count }, (_, index) => `${name}${index}`);

test('so many begin at once; the others wait, begin in their order, and not at all once their callers have left', (t) => {
  const { begun, left, enter, leave, limit } = start();
  enter('a', 'b', 'c', 'd', 'e');
  assert.deepEqual([begun, limit.waiting], [['a', 'b'], 3]);
  leave('d');
  assert.deepEqual([begun, left, limit.waiting], [['a', 'b'], ['d'], 2]);
  leave('a');
  assert.deepEqual(begun, ['a', 'b', 'c']);
  leave('b');
  assert.deepEqual([begun, limit.waiting], [['a', 'b', 'c', 'e'], 0]);
  leave('c', 'e');
  enter('f', 'g', 'h');
  assert.deepEqual(begun.slice(4), ['f', 'g']);
  t.end();
});

test('a request counts as work from when it comes until it is counted elsewhere or has gone, and once only', async () => {
  const { work, enter, leave, handOver } = start();
  enter('a', 'b', 'c');
  assert.deepEqual([work.size, work.active], [3, 3]);
  let end = () => {};
  const running = work.run(
    new Promise<void>((resolve) => {
      end = resolve;
    }),
  );
  handOver('a');
  assert.deepEqual([work.size, work.active], [3, 3]);
  leave('a', 'b', 'c');
  assert.deepEqual([work.size, work.active], [1, 1]);
  end();
  await running;
  assert.deepEqual([work.size, work.active], [0, 0]);
});

test('what waits for the provider makes room for others', async () => {
  const { work, begun, enter, handOver } = start();
  enter('a', 'b', 'c');
  let answer = () => {};
  const spoken = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const served = work.run(work.waitFor(spoken));
  handOver('a');
  assert.deepEqual(begun, ['a', 'b', 'c']);
  answer();
  await served;
});

test('an idle process begins more, up to a bound, since those at work wait for the database; a busy one fewer again', (t) => {
  const { begun, enter, leave, sample } = start();
  const names = many('a', 40);
  enter(...names);
  const begunAfter = (idleShare: number) => {
    sample(1, idleShare);
    return begun.length;
  };
  assert.deepEqual([0.4, 0.6, 0.6, 0.6].map(begunAfter), [2, 4, 8, 8]);
  assert.deepEqual([0, 0].map(begunAfter), [8, 8]);
  leave(...names.slice(0, 6));
  assert.equal(begun.length, 8, 'two are at work, as many as at least');
  leave('a6');
  assert.equal(begun.length, 9);
  t.end();
});

test('it is full when many have waited for too long for half a second, and not because of a moment or of a few', (t) => {
  const { limit, enter, leave, sample } = start();
  enter(...many('a', 6));
  sample(10);
  assert.ok(!limit.isFull);
  sample(1);
  assert.ok(limit.isFull);
  leave('a0');
  assert.ok(!limit.isFull, 'three wait');
  enter('b');
  assert.ok(limit.isFull);
  leave(...many('a', 6), 'b');
  enter(...many('c', 6));
  assert.ok(!limit.isFull, 'nobody has waited for long');
  sample(2);
  assert.ok(limit.isFull, 'a moment without a queue is not the end of it');
  leave(...many('c', 6));
  sample(20);
  enter(...many('d', 6));
  sample(3);
  assert.ok(!limit.isFull);
  t.end();
});

test('a crowd is over when the process is idle and nobody waits for a second', (t) => {
  const { limit, enter, leave, sample } = start();
  enter(...many('a', 20));
  sample(22);
  assert.ok(limit.isFull);
  leave(...many('a', 20));
  for (let turn = 0; turn < 5; turn++) {
    enter(...many(`b${turn} `, 20));
    sample(8, 1);
    leave(...many(`b${turn} `, 20));
  }
  enter(...many('c', 20));
  sample(3, 1);
  assert.ok(!limit.isFull);
  t.end();
});

test('who has waited for ten seconds is refused', (t) => {
  const { begun, refused, work, enter, sample } = start();
  enter('a', 'b', 'c');
  sample(199);
  enter('d');
  assert.deepEqual(refused, []);
  sample(1);
  assert.deepEqual([begun, refused, work.active], [['a', 'b'], ['c'], 3]);
  t.end();
});

test('what does not begin is what would reach nobody, however many there are', (t) => {
  const { begun, left, work, limit, enter, leave, of } = start();
  const names = many('c', 5000);
  enter('a', 'b', ...names, 'd');
  for (const name of names.slice(0, 2500)) of(name).request.socket.destroyed = true;
  for (const name of names.slice(2500)) of(name).request.socket.writableEnded = true;
  leave('a');
  assert.deepEqual([begun, left, limit.waiting, work.active], [['a', 'b', 'd'], names, 0, 2]);
  leave(...names);
  assert.equal(work.active, 2);
  t.end();
});

test('what has begun and does not arrive makes room for others, one crowd of it after the other, and is counted all the same', (t) => {
  const { begun, work, enter, leave, of, sample, handOver } = start();
  const slow = many('a', 6);
  enter(...slow, 'b');
  for (const name of slow) of(name).request.complete = false;
  sample(2);
  assert.deepEqual(begun, ['a0', 'a1']);
  sample(1);
  assert.deepEqual(begun, slow.slice(0, 4));
  sample(6);
  assert.deepEqual([begun, work.size, work.active], [[...slow, 'b'], 7, 1]);
  handOver('a0');
  leave('a0', 'a1');
  assert.deepEqual([work.size, work.active], [5, 1], 'nothing is taken out twice');
  t.end();
});

test('once it is open all begin', (t) => {
  const { begun, limit, enter, sample } = start();
  enter('a', 'b', 'c', 'd');
  limit.open();
  assert.deepEqual(begun, ['a', 'b', 'c', 'd']);
  sample(1);
  enter('e');
  assert.deepEqual(begun, ['a', 'b', 'c', 'd', 'e']);
  t.end();
});

test('while the database stands, what waits is no crowd before a second', (t) => {
  const { limit, enter, sample } = start();
  enter(...many('a', 20));
  sample(28, 1);
  assert.ok(!limit.isFull);
  sample(1, 1);
  assert.ok(limit.isFull);
  t.end();
});

test('it is full at once when as many wait as may', (t) => {
  const { limit, enter } = start();
  enter(...many('a', 51));
  assert.ok(!limit.isFull);
  enter('b');
  assert.ok(limit.isFull);
  t.end();
});

test('it is half full when half as many wait half as long as may', (t) => {
  const { limit, clock, enter } = start();
  enter('a', 'b', 'c');
  clock.passed += 50;
  assert.ok(!limit.isHalfFull);
  enter('d');
  assert.ok(limit.isHalfFull);
  clock.passed = 49;
  assert.ok(!limit.isHalfFull);
  t.end();
});

test('of a request that had to wait it is known when it came', (t) => {
  const { clock, enter, of } = start();
  clock.passed = 7;
  enter('a', 'b', 'c');
  assert.deepEqual(
    ['a', 'b', 'c'].map((name) => arrivalOf(of(name).response as unknown as ServerResponse)),
    [undefined, undefined, 7],
  );
  t.end();
});
