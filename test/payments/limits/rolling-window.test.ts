import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { openDatabase } from '../../../src/db/database.ts';
import type { Bucket } from '../../../src/db/rate-window.ts';
import { Metrics } from '../../../src/observability/metrics.ts';
import { addressKey } from '../../../src/payments/limits/address-key.ts';
import { RollingWindow, type Slot } from '../../../src/payments/limits/rolling-window.ts';
import { testDatabase } from '../../support/database.ts';
import { controlDatabaseClock } from '../../support/database-clock.ts';
import { recordStatements } from '../../support/recorded-statements.ts';

const ip = (key: string): Bucket => ({ scope: 'ip', key });

async function setUp(t: Test, options = { max: 30, windowSeconds: 60 }) {
  const { url } = await testDatabase(t);
  const clock = await controlDatabaseClock(url);
  const db = openDatabase(url);
  t.teardown(async () => {
    await db.destroy();
    await clock.close();
  });
  const window = (changed = {}) => new RollingWindow(db, { ...options, ...changed }, new Metrics());
  return { url, db, clock, window, limits: window() };
}

const takeTimes = async (limits: RollingWindow, bucket: Bucket, times: number): Promise<Slot[]> => {
  const slots: Slot[] = [];
  for (let count = 0; count < times; count += 1) slots.push(await limits.take(bucket));
  return slots;
};

test('R39: a full window frees a slot exactly when its oldest request leaves', async (t) => {
  const { clock, limits } = await setUp(t);
  const common = { scope: 'ip', limit: 30, windowSeconds: 60 } as const;
  const [first] = await takeTimes(limits, ip('a'), 1);
  t.strictSame(first, { ...common, allowed: true, remaining: 29, resetSeconds: 60 });
  await clock.advance('10.25 seconds');
  const rest = await takeTimes(limits, ip('a'), 29);
  t.strictSame(
    rest.map((slot) => slot.remaining),
    Array.from({ length: 29 }, (_, index) => 28 - index),
  );
  t.equal(rest.at(-1)?.resetSeconds, 50, '49.75 seconds, rounded up');

  const refused = await limits.take(ip('a'));
  t.strictSame(refused, { ...common, allowed: false, remaining: 0, resetSeconds: 50 });
  await clock.advance('49.749999 seconds');
  const early = await limits.take(ip('a'));
  t.equal(early.allowed, false, 'a microsecond too early');
  t.equal(early.resetSeconds, 1);
  await clock.advance('0.000001 seconds');
  const slot = await limits.take(ip('a'));
  t.equal(slot.allowed, true);
  t.equal(slot.remaining, 0);
  t.equal(slot.resetSeconds, 11, 'the next oldest is 10.25 seconds younger');
  t.equal((await limits.take(ip('a'))).allowed, false);
});

test('R13: an existing account has its own bucket, all else counts for the address', async (t) => {
  const { db, limits } = await setUp(t, { max: 2, windowSeconds: 60 });
  const account = '3b241101-e2bb-4255-8caf-4136c566a962';
  await db.insertInto('account').values({ id: account, kind: 'card', balance_micro_usd: 0n }).execute();
  const take = async (accountId: string | undefined) => {
    const { scope, allowed } = await limits.takeForAccount(accountId, ip('192.0.2.7'));
    return `${scope} ${allowed}`;
  };
  t.equal(await take(account), 'account true');
  t.equal(await take(account.toUpperCase()), 'account true');
  t.equal(await take(account), 'account false');
  t.equal(await take(randomUUID()), 'ip true');
  t.equal(await take('no uuid'), 'ip true');
  t.equal(await take(randomUUID()), 'ip false');
  t.equal(await take(undefined), 'ip false');
  const contra = '00000000-0000-4000-8000-000000000001';
  t.equal(await take(contra), 'ip false', "the ledger's own accounts are nobody's");
});

test('R13: neither an address nor an account id is stored', async (t) => {
  const { db, limits } = await setUp(t);
  const account = randomUUID();
  await db.insertInto('account').values({ id: account, kind: 'card', balance_micro_usd: 0n }).execute();
  await limits.takeForAccount(account, ip('192.0.2.7'));
  await limits.take(ip('192.0.2.7'));
  const { rows } = await sql<{ row: string }>`
    select rate_window::text || ' ' || encode(key, 'escape') as row from rate_window`.execute(db);
  t.equal(rows.length, 2);
  for (const { row } of rows) {
    t.ok(!row.includes(account) && !row.includes('192.0.2.7'), row);
  }
});

test('a lowered limit counts earlier requests', async (t) => {
  const { clock, window } = await setUp(t, { max: 5, windowSeconds: 60 });
  const before = window();
  for (let count = 0; count < 5; count += 1) {
    await before.take(ip('a'));
    await clock.advance('1 second');
  }
  const after = window({ max: 2 });
  const refused = await after.take(ip('a'));
  t.strictSame([refused.allowed, refused.remaining, refused.resetSeconds], [false, 0, 58]);
  await clock.advance('58 seconds');
  t.equal((await after.take(ip('a'))).allowed, true);
});

test('R39: a database clock that steps back frees no slot', async (t) => {
  const { clock, limits } = await setUp(t, { max: 2, windowSeconds: 10 });
  await limits.take(ip('a'));
  await clock.advance('-3 seconds');
  const second = await limits.take(ip('a'));
  t.strictSame([second.allowed, second.resetSeconds], [true, 10]);
  t.equal((await limits.take(ip('a'))).allowed, false);
});

test('pruning deletes exactly the buckets unused for a minute beyond their window', async (t) => {
  const { db, clock, limits } = await setUp(t, { max: 30, windowSeconds: 120 });
  await limits.take(ip('old'));
  await clock.advance('90 seconds');
  await limits.take(ip('young'));
  await clock.advance('90 seconds');
  t.equal(await limits.prune(), 0);
  await clock.advance('0.000001 seconds');
  t.equal(await limits.prune(), 1);
  t.equal(await limits.prune(), 0);
  t.equal((await db.selectFrom('rate_window').select('key').execute()).length, 1);
  t.equal((await limits.take(ip('young'))).remaining, 28);
  t.equal((await limits.take(ip('old'))).remaining, 29);
});

test('pruning does not wait for a bucket in use', async (t) => {
  const { db, clock, limits } = await setUp(t);
  await limits.take(ip('a'));
  await limits.take(ip('b'));
  await clock.advance('3 minutes');
  await db.transaction().execute(async (holder) => {
    await sql`select from rate_window limit 1 for update`.execute(holder);
    assert.equal(await limits.prune(), 1);
  });
  t.equal(await limits.prune(), 1);
});

const MICROS = 1_000_000;

test('random concurrent attempts get what a sequential rolling window gives', async (t) => {
  const max = 4;
  const windowSeconds = 10;
  const { clock, limits } = await setUp(t, { max, windowSeconds });
  const statements = recordStatements(t);
  const step = fc.record({
    keys: fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 12 }),
    // Whole seconds meet the window's edges exactly; the odd microseconds fall just beside them.
    pauseMicros: fc.oneof(
      fc.integer({ min: 0, max: 11 }).map((seconds) => seconds * MICROS),
      fc.constantFrom(1, 999_999, 9_999_999, 10_000_001),
    ),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 20 }), fc.uuid(), async (steps, run) => {
      const model = new Map<string, number[]>();
      let now = 0;
      for (const { keys, pauseMicros } of steps) {
        now += pauseMicros;
        await clock.advance(`${pauseMicros} microseconds`);
        const expected = keys.map((key) => {
          const live = (model.get(key) ?? []).filter((taken) => now - taken < windowSeconds * MICROS);
          const allowed = live.length < max;
          if (allowed) live.push(now);
          model.set(key, live);
          const resetSeconds = Math.ceil(((live[0] ?? 0) + windowSeconds * MICROS - now) / MICROS);
          return { scope: 'ip', allowed, limit: max, windowSeconds, remaining: max - live.length, resetSeconds };
        });
        statements.take();
        assert.deepEqual(await Promise.all(keys.map((key) => limits.take(ip(run + key)))), expected);
        const asked = statements.recorded.filter(({ text }) => text.includes('rate_window'));
        assert.equal(asked.length, 1, 'in one statement');
      }
    }),
    { numRuns: 60 },
  );
});

const ADDRESS_KEYS: [address: string, key: string][] = [
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['::FFFF:c000:207', '192.0.2.7'],
  ['0:0:0:0:0:ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:3::1', '2001:db8:1:3::/64'],
  ['2001:db8::7:1:2:3:4', '2001:db8:0:7::/64'],
  ['::', '0:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['::fffe:192.0.2.7', '0:0:0:0::/64'],
  ['', 'unknown'],
  ['unknown', 'unknown'],
  ['192.0.2.7:4711', '192.0.2.7'],
  ['"192.0.2.7:4711"', '192.0.2.7'],
  ['::ffff:192.0.2.7:47111', '192.0.2.7'],
  ['[::ffff:192.0.2.7]:4711', '192.0.2.7'],
  ['[2001:db8::1]:443', '2001:db8:0:0::/64'],
  ['"[2001:db8:1:2::1]:443"', '2001:db8:1:2::/64'],
  ['2001:db8:1:2:3:4:5:6:443', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::1:50000', '2001:db8:1:2::/64'],
  ['[fe80::1%eth0]:443', 'fe80:0:0:0::/64'],
  ['_hidden:4711', '_hidden'],
  ['unknown:4711', 'unknown'],
  [':4711', 'unknown'],
  ['client.example', 'client.example'],
  ['x'.repeat(9_000), 'x'.repeat(64)],
];

test('R13: an address counts without its port, IPv6 by its network', async (t) => {
  for (const [address, key] of ADDRESS_KEYS) t.equal(addressKey(address), key, address.slice(0, 80));
});
