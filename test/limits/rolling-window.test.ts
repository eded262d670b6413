import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { type Bucket, RollingWindow } from '../../src/limits/rolling-window.ts';
import type { Slot } from '../../src/limits/slot.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { testDatabase } from '../support/database.ts';
import { ip, setUp } from './bucket.ts';

const takeTimes = async (limits: RollingWindow, bucket: Bucket, times: number): Promise<Slot[]> => {
  const slots: Slot[] = [];
  for (let count = 0; count < times; count += 1) slots.push(await limits.take(bucket));
  return slots;
};

test('R39: the 31st request of a minute is refused, and its slot is free exactly when the oldest leaves the window', async (t) => {
  const { clock, limits } = await setUp(t);
  const [first] = await takeTimes(limits, ip('a'), 1);
  assert.deepEqual(first, {
    scope: 'ip',
    allowed: true,
    limit: 30,
    windowSeconds: 60,
    remaining: 29,
    resetSeconds: 60,
  });
  await clock.advance('10.25 seconds');
  const rest = await takeTimes(limits, ip('a'), 29);
  assert.deepEqual(
    rest.map((slot) => slot.remaining),
    Array.from({ length: 29 }, (_, index) => 28 - index),
  );
  assert.equal(rest.at(-1)?.resetSeconds, 50, '49.75 seconds, rounded up');

  const refused = await limits.take(ip('a'));
  assert.deepEqual(refused, {
    scope: 'ip',
    allowed: false,
    limit: 30,
    windowSeconds: 60,
    remaining: 0,
    resetSeconds: 50,
  });
  await clock.advance('49.749999 seconds');
  const early = await limits.take(ip('a'));
  assert.equal(early.allowed, false, 'a microsecond too early');
  assert.equal(early.resetSeconds, 1);
  await clock.advance('0.000001 seconds');
  const slot = await limits.take(ip('a'));
  assert.equal(slot.allowed, true);
  assert.equal(slot.remaining, 0);
  assert.equal(slot.resetSeconds, 11, 'the next oldest is 10.25 seconds younger');
  assert.equal((await limits.take(ip('a'))).allowed, false);
});

test('R39: a client that waits as long as Retry-After says is never refused again', async (t) => {
  const { clock, limits } = await setUp(t, { max: 2, windowSeconds: 7 });
  for (const pause of ['0.3 seconds', '1.999999 seconds', '0.000001 seconds', '3 seconds']) {
    for (let slot = await limits.take(ip('a')); slot.allowed; slot = await limits.take(ip('a'))) {
      await clock.advance(pause);
    }
    const { resetSeconds } = await limits.take(ip('a'));
    await clock.advance(`${resetSeconds} seconds`);
    assert.equal((await limits.take(ip('a'))).allowed, true, `after pauses of ${pause}`);
  }
});

test('R39: the window is a rolling one by any sequence of requests and pauses', async (t) => {
  const max = 3;
  const windowSeconds = 10;
  const { clock, limits } = await setUp(t, { max, windowSeconds });
  const step = fc.record({
    key: fc.constantFrom('a', 'b'),
    // Whole seconds meet the window's edges exactly; the odd microseconds fall just beside them.
    pauseMicros: fc.oneof(
      fc.integer({ min: 0, max: 11 }).map((seconds) => seconds * 1_000_000),
      fc.constantFrom(1, 999_999, 9_999_999, 10_000_001),
    ),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), fc.uuid(), async (steps, run) => {
      const model = new Map<string, number[]>();
      let now = 0;
      for (const { key, pauseMicros } of steps) {
        now += pauseMicros;
        await clock.advance(`${pauseMicros} microseconds`);
        const live = (model.get(key) ?? []).filter((taken) => now - taken < windowSeconds * 1e6);
        const allowed = live.length < max;
        if (allowed) live.push(now);
        model.set(key, live);
        assert.deepEqual(await limits.take(ip(run + key)), {
          scope: 'ip',
          allowed,
          limit: max,
          windowSeconds,
          remaining: max - live.length,
          resetSeconds: Math.ceil(((live[0] ?? 0) + windowSeconds * 1e6 - now) / 1e6),
        });
      }
    }),
    { numRuns: 40 },
  );
});

test('R39: 40 takes at the same moment on a limit of 30: exactly 30 get a slot, each another one', async (t) => {
  const { url } = await testDatabase(t);
  const dbs = [openDatabase(url), openDatabase(url)];
  t.teardown(() => Promise.all(dbs.map((db) => db.destroy())));
  const processes = dbs.map((db) => new RollingWindow(db, { max: 30, windowSeconds: 60 }, new Metrics()));
  for (const key of ['a', 'b', 'c']) {
    const slots = await Promise.all(
      Array.from({ length: 40 }, (_, index) => (processes[index % 2] as RollingWindow).take(ip(key))),
    );
    const remaining = slots.filter((slot) => slot.allowed).map((slot) => slot.remaining);
    assert.deepEqual(
      remaining.sort((a, b) => a - b),
      Array.from({ length: 30 }, (_, index) => index),
    );
  }
});

test('R48: a refused request takes no slot', async (t) => {
  const { clock, limits } = await setUp(t, { max: 2, windowSeconds: 10 });
  await takeTimes(limits, ip('a'), 2);
  for (let second = 1; second < 10; second += 1) {
    await clock.advance('1 second');
    const slot = await limits.take(ip('a'));
    assert.deepEqual([slot.allowed, slot.resetSeconds], [false, 10 - second]);
  }
  await clock.advance('1 second');
  assert.deepEqual(
    (await takeTimes(limits, ip('a'), 3)).map((slot) => slot.allowed),
    [true, true, false],
  );
});

test('R48: equal keys of different scopes are different buckets', async (t) => {
  const { limits } = await setUp(t, { max: 1, windowSeconds: 60 });
  for (const scope of ['ip', 'feedback', 'audio', 'account'] as const) {
    const slot = await limits.take({ scope, key: 'same' });
    assert.deepEqual([slot.scope, slot.allowed], [scope, true]);
  }
  assert.equal((await limits.take({ scope: 'feedback', key: 'same' })).allowed, false);
});

test('R13: an existing account has a bucket of its own in any letter case, everything else counts for the address', async (t) => {
  const { db, limits } = await setUp(t, { max: 2, windowSeconds: 60 });
  const account = '3b241101-e2bb-4255-8caf-4136c566a962';
  await db.insertInto('account').values({ id: account, kind: 'card', balance_micro_usd: 0n }).execute();
  const take = async (accountId: string | undefined) => {
    const { scope, allowed } = await limits.takeForAccount(accountId, ip('192.0.2.7'));
    return `${scope} ${allowed}`;
  };
  assert.equal(await take(account), 'account true');
  assert.equal(await take(account.toUpperCase()), 'account true');
  assert.equal(await take(account), 'account false');
  assert.equal(await take(randomUUID()), 'ip true');
  assert.equal(await take('no uuid'), 'ip true');
  assert.equal(await take(randomUUID()), 'ip false');
  assert.equal(await take(undefined), 'ip false');
  const contra = '00000000-0000-4000-8000-000000000001';
  assert.equal(await take(contra), 'ip false', "the ledger's own accounts are nobody's");
});

test('R13: neither an address nor an account id is stored', async (t) => {
  const { db, limits } = await setUp(t);
  const account = randomUUID();
  await db.insertInto('account').values({ id: account, kind: 'card', balance_micro_usd: 0n }).execute();
  await limits.takeForAccount(account, ip('192.0.2.7'));
  await limits.take(ip('192.0.2.7'));
  const { rows } = await sql<{ row: string }>`
    select rate_window::text || ' ' || encode(key, 'escape') as row from rate_window`.execute(db);
  assert.equal(rows.length, 2);
  for (const { row } of rows) {
    assert.ok(!row.includes(account) && !row.includes('192.0.2.7'), row);
  }
});

test('a limit that was lowered counts what was taken before', async (t) => {
  const { clock, window } = await setUp(t, { max: 5, windowSeconds: 60 });
  const before = window();
  for (let count = 0; count < 5; count += 1) {
    await before.take(ip('a'));
    await clock.advance('1 second');
  }
  const after = window({ max: 2 });
  const refused = await after.take(ip('a'));
  assert.deepEqual([refused.allowed, refused.remaining, refused.resetSeconds], [false, 0, 58]);
  await clock.advance('58 seconds');
  assert.equal((await after.take(ip('a'))).allowed, true);
});

test('R39: no slot is won when the clock of the database steps back', async (t) => {
  const { clock, limits } = await setUp(t, { max: 2, windowSeconds: 10 });
  await limits.take(ip('a'));
  await clock.advance('-3 seconds');
  const second = await limits.take(ip('a'));
  assert.deepEqual([second.allowed, second.resetSeconds], [true, 10]);
  assert.equal((await limits.take(ip('a'))).allowed, false);
});
