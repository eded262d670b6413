import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { MAX_ATTEMPTS, retryDelayMs } from '../../src/jobs/retry.ts';

const MINUTES = 60_000;

test('waits grow threefold from a second, and the fifth attempt is the last', async () => {
  const rows: [attempt: number, random: number, expected: number | undefined][] = [
    [1, 0, 1_000],
    [1, 1, 1_250],
    [2, 0, 3_000],
    [3, 0, 9_000],
    [4, 0, 27_000],
    [4, 1, 33_750],
    [5, 0, undefined],
    [6, 0, undefined],
  ];
  for (const [attempt, random, expected] of rows) {
    assert.equal(retryDelayMs(attempt, 0, undefined, random), expected, `attempt ${attempt}`);
  }
  assert.equal(MAX_ATTEMPTS, 5);
});

test('the provider is never asked before the time that it named', async () => {
  assert.equal(retryDelayMs(1, 0, 30, 0), 30_000);
  assert.equal(retryDelayMs(4, 0, 2, 0), 27_000);
});

test('no attempt begins more than 15 minutes after the first', async () => {
  assert.equal(retryDelayMs(1, 0, 15 * 60, 0), 15 * MINUTES);
  assert.equal(retryDelayMs(1, 0, 15 * 60 + 1, 0), undefined);
  assert.equal(retryDelayMs(2, 15 * MINUTES - 3_000, undefined, 0), 3_000);
  assert.equal(retryDelayMs(2, 15 * MINUTES - 2_999, undefined, 0), undefined);
  assert.equal(retryDelayMs(1, 0, 3600, 0), undefined);
});

test('whatever the provider says, a wait is bounded, and so is their number', async () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 100 }),
      fc.integer({ min: 0, max: 10 * 3_600_000 }),
      fc.option(fc.integer({ min: 1, max: 3600 }), { nil: undefined }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      (attempt, elapsedMs, retryAfter, random) => {
        const delay = retryDelayMs(attempt, elapsedMs, retryAfter, random);
        if (delay === undefined) return;
        assert.ok(attempt < MAX_ATTEMPTS);
        assert.ok(delay >= 1_000 && delay >= (retryAfter ?? 0) * 1_000);
        assert.ok(elapsedMs + delay <= 15 * MINUTES);
      },
    ),
  );
});
