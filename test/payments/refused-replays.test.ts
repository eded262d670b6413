import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { test } from 'tap';
import { refused } from '../../src/payments/refusal.ts';
import { RefusedReplays } from '../../src/payments/refused-replays.ts';

const HOUR_MS = 3_600_000;
const REFUSAL = refused('PREPAID_NONCE_REPLAYED', 'nonce_spent');
const DIGEST = Buffer.alloc(32, 1);

test('a refusal is remembered for as long as it was added for, whatever becomes of the wall clock', async (t) => {
  const cases: [string, number][] = [
    ['is set back by an hour', -HOUR_MS],
    ['is set forward by an hour', HOUR_MS],
  ];
  t.teardown(() => mock.reset());
  for (const [name, stepMs] of cases) {
    const time = { wall: 0, monotonic: 0 };
    mock.method(Date, 'now', () => time.wall);
    mock.method(performance, 'now', () => time.monotonic);
    const replays = new RefusedReplays();
    replays.add(DIGEST, REFUSAL, 1_000);
    time.wall += stepMs;
    time.monotonic = 999;
    assert.equal(replays.get(DIGEST), REFUSAL, `the wall clock ${name}: remembered`);
    time.monotonic = 1_000;
    assert.equal(replays.get(DIGEST), undefined, `the wall clock ${name}: forgotten`);
  }
});
