import { mock } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { LeaseRenewer } from '../../src/db/lease.ts';
import { testDatabase } from '../support/database.ts';

const SECONDS = 15;

/** A renewer with a clock of the test, which tells what was renewed when, in seconds since the leases were taken. */
function withClock(t: Test) {
  const begin = 1_000_000;
  let nowMs = begin;
  mock.timers.enable({ apis: ['setInterval'] });
  const clock = mock.method(performance, 'now', () => nowMs);
  t.teardown(() => {
    mock.timers.reset();
    clock.mock.restore();
  });
  const renewals: [second: number, items: string][] = [];
  const lost: [second: number, item: string][] = [];
  const second = () => (nowMs - begin) / 1000;
  const world = {
    /** What the database makes of a renewal; each item belongs to this process by default. */
    renew: async (items: readonly string[]): Promise<ReadonlySet<string>> => new Set(items),
  };
  const renewer = new LeaseRenewer<string>({
    seconds: SECONDS,
    keyOf: (item) => item,
    renew: (items) => {
      renewals.push([second(), items.join('')]);
      return world.renew(items);
    },
  });
  return {
    renewer,
    world,
    renewals,
    lost,
    keep: (item: string) => renewer.keep(item, nowMs, () => lost.push([second(), item])),
    /** Time passes, and no timer fires, as in a process that is frozen. */
    stepAhead: (seconds: number) => {
      nowMs += seconds * 1_000;
    },
    pass: async (seconds: number) => {
      for (let passed = 0; passed < seconds; passed++) {
        nowMs += 1_000;
        mock.timers.tick(1_000);
        await nextTurn();
      }
    },
  };
}

test('a lease is renewed in its second third, together with others', async (t) => {
  const { keep, pass, renewals, lost } = withClock(t);
  keep('a');
  keep('b');
  await pass(4);
  t.strictSame(renewals, []);
  keep('c');
  await pass(10);
  t.strictSame(renewals, [
    [5, 'ab'],
    [9, 'c'],
    [10, 'ab'],
    [14, 'c'],
  ]);
  t.strictSame(lost, []);
});

test('a failing renewal is retried until the lease is lost in its last third', async (t) => {
  const { keep, pass, world, renewals, lost } = withClock(t);
  world.renew = async () => {
    throw new Error('the database is away');
  };
  keep('a');
  await pass(20);
  t.strictSame(
    renewals.map(([second]) => second),
    [5, 6, 7, 8, 9],
  );
  t.strictSame(lost, [[10, 'a']]);
});

test('a renewal that succeeds after failures keeps the lease', async (t) => {
  const { keep, pass, world, renewals, lost } = withClock(t);
  let failures = 3;
  world.renew = async (items) => {
    if (failures-- > 0) throw new Error('the database is away');
    return new Set(items);
  };
  keep('a');
  await pass(13);
  t.strictSame(
    renewals.map(([second]) => second),
    [5, 6, 7, 8, 13],
  );
  t.strictSame(lost, []);
});

test('renewals do not overlap, and a lease counts from the start of its renewal', async (t) => {
  const { keep, pass, world, renewals, lost } = withClock(t);
  let answer = (_renewed: ReadonlySet<string>) => {};
  world.renew = () =>
    new Promise((resolve) => {
      answer = resolve;
    });
  keep('a');
  await pass(9);
  t.strictSame(renewals, [[5, 'a']]);
  answer(new Set(['a']));
  await nextTurn();
  await pass(1);
  t.strictSame(renewals, [
    [5, 'a'],
    [10, 'a'],
  ]);
  t.strictSame(lost, []);
});

test('a lease taken by another process is lost at once, and the others stay', async (t) => {
  const { keep, pass, world, lost } = withClock(t);
  world.renew = async (items) => new Set(items.filter((item) => item !== 'b'));
  for (const item of ['a', 'b', 'c']) keep(item);
  await pass(30);
  t.strictSame(lost, [[5, 'b']]);
});

test('a released lease is neither renewed nor lost', async (t) => {
  const { keep, pass, renewals, lost } = withClock(t);
  const endA = keep('a');
  keep('b');
  endA();
  await pass(6);
  t.strictSame(renewals, [[5, 'b']]);
  t.strictSame(lost, []);
});

test('ownsLease is false once the lease may have ended, even in a frozen process', async (t) => {
  const { renewer, keep, pass, stepAhead, lost } = withClock(t);
  t.equal(renewer.ownsLease('a'), false, 'it was never taken');
  keep('a');
  await pass(4);
  t.equal(renewer.ownsLease('a'), true);
  stepAhead(SECONDS - 5);
  t.equal(renewer.ownsLease('a'), true);
  stepAhead(1);
  t.equal(renewer.ownsLease('a'), false);
  t.strictSame(lost, []);
  await pass(1);
  t.strictSame(lost, [[SECONDS + 1, 'a']]);
});

test('lease_has_ended is true past the end or too far ahead of the clock', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const cases: [lease: string, hasEnded: boolean][] = [
    ["now() - interval '1 second'", true],
    ["now() + interval '1 second'", false],
    ["now() + interval '15 seconds'", false],
    ["now() + interval '20 seconds'", true],
    ["now() + interval '1 hour'", true],
  ];
  for (const [lease, hasEnded] of cases) {
    const { rows } = await sql<{ ended: boolean }>`
      select lease_has_ended(${sql.raw(lease)}, ${SECONDS}) as ended`.execute(db);
    t.equal(rows[0]?.ended, hasEnded, lease);
  }
});
