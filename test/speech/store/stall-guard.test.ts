import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { mock } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { type Test, test } from 'tap';
import { guardAgainstStall } from '../../../src/speech/store/stall-guard.ts';

/** Lets streams do what they have to do; they need turns of the event loop, not time. */
async function settle(): Promise<void> {
  for (let turns = 0; turns < 20; turns += 1) await turn();
}

function withMockedTimers(t: Test): (ms: number) => Promise<void> {
  t.teardown(() => mock.reset());
  mock.timers.enable({ apis: ['setTimeout'] });
  return async (ms) => {
    mock.timers.tick(ms);
    await settle();
  };
}

test("each chunk restarts the source's timeout", async (t) => {
  const pass = withMockedTimers(t);
  const source = new PassThrough();
  const whole = buffer(guardAgainstStall(source, 1000));
  for (let piece = 0; piece < 5; piece += 1) {
    await pass(900);
    source.write('x');
    await settle();
  }
  source.end();
  t.equal((await whole).toString(), 'xxxxx');
});

test('a slow reader never counts as a stalled source', async (t) => {
  const pass = withMockedTimers(t);
  const source = Readable.from(Array.from({ length: 64 }, () => Buffer.alloc(16_384)));
  const guarded = guardAgainstStall(source, 1000);
  await settle();
  for (let hour = 0; hour < 10; hour += 1) await pass(3_600_000);
  t.equal((await buffer(guarded)).length, 64 * 16_384);
});

test('after a slow reader resumes, the source gets its full timeout', async (t) => {
  const pass = withMockedTimers(t);
  const source = new PassThrough({ highWaterMark: 1 });
  const guarded = guardAgainstStall(source, 1000);
  source.write(Buffer.alloc(100_000));
  await settle();
  await pass(1000);
  await pass(999);
  guarded.resume();
  await settle();
  await pass(999);
  t.equal(guarded.destroyed, false);
  source.end();
  await settle();
  t.equal(guarded.readableEnded, true);
});

test('a reader that disconnects ends the source', async (t) => {
  const source = new PassThrough();
  const guarded = guardAgainstStall(source, 60_000);
  guarded.on('error', () => undefined);
  guarded.destroy();
  await settle();
  t.equal(source.destroyed, true);
});
