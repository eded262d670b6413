import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { type Test, test } from 'tap';
import { DirectWork } from '../../../src/payments/direct/direct-work.ts';
import { type EndWork, UnpaidWorkLimiter } from '../../../src/payments/limits/unpaid-work-limiter.ts';

const HOUR = 3_600_000;
const LIMITS = { windowMs: HOUR, maxUnpaidMs: 60_000, regainedMs: 20_000, maxRunning: 3 };

/** The monotonic clock, to be moved. */
function clock(t: Test) {
  const time = { now: 1_000_000 };
  t.teardown(() => mock.reset());
  mock.method(performance, 'now', () => time.now);
  return time;
}

function begun(work: UnpaidWorkLimiter, key = 'a'): EndWork {
  const begun = work.begin(key);
  if (begun.outcome === 'refused') throw new Error(`refused: ${begun.reason}`);
  return begun.end;
}

function refusal(work: UnpaidWorkLimiter, key = 'a'): string | undefined {
  const begun = work.begin(key);
  return begun.outcome === 'refused' ? begun.reason : undefined;
}

test('a key with too much unpaid work gets one synthesis at a time', async (t) => {
  const time = clock(t);
  const work = new UnpaidWorkLimiter(LIMITS);
  const [first, second] = [begun(work), begun(work)];
  time.now += 59_000;
  begun(work)('not begun');
  first('unpaid');
  first('paid');
  t.equal(refusal(work), 'one_at_a_time_while_unpaid', 'what runs counts once something is lost');
  begun(work, 'b');
  begun(work, 'b');
  second('not begun');
  begun(work);
  time.now += 1_000;
  t.equal(refusal(work), 'one_at_a_time_while_unpaid');
});

test('paid work and the passing window reduce unpaid work', async (t) => {
  const time = clock(t);
  const work = new UnpaidWorkLimiter(LIMITS);
  const lose = (ms: number) => {
    const end = begun(work);
    time.now += ms;
    end('unpaid');
  };
  lose(75_000);
  const held = begun(work);
  t.equal(refusal(work), 'one_at_a_time_while_unpaid');
  held('paid');
  begun(work)('not begun');
  const [one, two] = [begun(work), begun(work)];
  one('paid');
  two('paid');
  begun(work)('paid');
  t.equal(work.size, 0, 'nothing is left of it');
  lose(75_000);
  time.now += HOUR;
  const ends = [begun(work), begun(work), begun(work)];
  t.equal(refusal(work), 'too_many_at_once');
  for (const end of ends) end('not begun');
  t.equal(work.size, 0);
});

test('the number of remembered keys is bounded, and expired keys are dropped', async (t) => {
  const time = clock(t);
  const work = new UnpaidWorkLimiter(LIMITS, 100);
  for (let key = 0; key < 1000; key += 1) {
    const end = begun(work, String(key));
    time.now += 10;
    end('unpaid');
  }
  t.equal(work.size, 100);
  time.now += HOUR;
  const end = begun(work);
  time.now += 10;
  end('unpaid');
  t.equal(work.size, 1);
});

test('R21b: only work lost to failed settlements counts for all direct payments', async (t) => {
  const time = clock(t);
  const work = new DirectWork({ ...LIMITS, maxRunning: 1000, maxUnsettledMs: 60_000 });
  const begin = (payer: string, address = payer) => {
    const begun = work.begin(payer, address);
    return begun.outcome === 'begun' ? begun.end : begun.code;
  };
  const ended = (payer: string, ms: number, end: 'settled' | 'unsettled' | 'voided') => {
    const done = begin(payer);
    if (typeof done === 'string') throw new Error(done);
    time.now += ms;
    done(end);
    done('unsettled');
  };
  for (let payer = 0; payer < 130; payer += 1) ended(`v${payer}`, 45_000, 'voided');
  ended('s', 45_000, 'settled');
  t.equal(work.unsettledSeconds, 0);
  ended('u', 59_000, 'unsettled');
  t.equal(Math.round(work.unsettledSeconds), 59);
  ended('u', 1_000, 'unsettled');
  t.equal(begin('other'), 'TTS_UNAVAILABLE');
  time.now += HOUR;
  t.equal(typeof begin('other'), 'function');
});

test('R21b: a payer or address with unpaid work is refused before all others', async (t) => {
  const time = clock(t);
  const work = new DirectWork({ ...LIMITS, maxUnsettledMs: 60_000 });
  const refusal = (payer: string, address: string) => {
    const begun = work.begin(payer, address);
    if (begun.outcome === 'begun') begun.end('not begun');
    return begun.outcome === 'begun' ? undefined : begun.code;
  };
  const first = work.begin('payer', 'address');
  time.now += 61_000;
  assert.ok(first.outcome === 'begun');
  first.end('unsettled');
  t.equal(refusal('other', 'elsewhere'), 'TTS_UNAVAILABLE');
  time.now += HOUR;
  const lost = work.begin('payer', 'address');
  time.now += 61_000;
  assert.ok(lost.outcome === 'begun');
  lost.end('voided');
  t.equal(work.begin('payer', 'address').outcome, 'begun');
  t.equal(refusal('payer', 'elsewhere'), 'RATE_LIMITED');
  t.equal(refusal('other', 'address'), 'RATE_LIMITED');
  t.equal(refusal('other', 'elsewhere'), undefined);
});
