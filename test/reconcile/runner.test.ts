import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { withLease } from '../../src/reconcile/lease.ts';
import type { Reconciler } from '../../src/reconcile/reconciler.ts';
import { testDatabase } from '../support/database.ts';
import { until } from '../support/until.ts';
import { setUp, withResolvers } from './logged-runner.ts';

test('of two replicas, one acts at a time, and both together once an interval', async (t) => {
  const { url } = await testDatabase(t);
  const intervalMs = 100;
  const begun: Date[] = [];
  let running = 0;
  let most = 0;
  const reconciler: Reconciler = {
    name: 'probe',
    async run() {
      running += 1;
      most = Math.max(most, running);
      const row = await first.db.selectFrom('reconciler').selectAll().executeTakeFirstOrThrow();
      begun.push(row.started_at);
      running -= 1;
    },
  };
  const first = setUp(t, url, [reconciler], { intervalMs });
  const second = setUp(t, url, [reconciler], { intervalMs });
  first.runner.start();
  second.runner.start();
  await until(() => begun.length >= 12);
  await Promise.all([first.runner.stop(), second.runner.stop()]);
  assert.equal(most, 1);
  const gaps = begun.slice(1).map((at, index) => at.getTime() - (begun[index] as Date).getTime());
  // 90 ms by the database's clock; timestamps come here in whole milliseconds.
  assert.ok(
    gaps.every((gap) => gap >= intervalMs * 0.9 - 1),
    `gaps of ${gaps} ms`,
  );
});

test("a reconciler of each nth turn acts in a process's first one and then leaves turns out", async (t) => {
  const { url } = await testDatabase(t);
  const life = async () => {
    const acts = { often: 0, rare: 0 };
    const { runner } = setUp(
      t,
      url,
      [
        { name: 'often', run: async () => void acts.often++ },
        { name: 'rare', everyTurns: 1_000_000, run: async () => void acts.rare++ },
      ],
      { intervalMs: 20 },
    );
    runner.start();
    await until(() => acts.often >= 5 && acts.rare > 0);
    await runner.stop();
    assert.equal(acts.rare, 1);
  };
  await life();
  await life();
});

test('a turn that takes long is not joined by another replica, nor by the same one', async (t) => {
  const { url } = await testDatabase(t);
  const entered = withResolvers();
  const leave = withResolvers();
  let runs = 0;
  const reconciler: Reconciler = {
    name: 'slow',
    async run({ done }) {
      runs += 1;
      entered.resolve();
      if (runs === 1) await leave.promise;
      done(1);
    },
  };
  const first = setUp(t, url, [reconciler]);
  const second = setUp(t, url, [reconciler]);
  const long = first.runner.turn();
  await entered.promise;
  assert.deepEqual(await second.runner.turn(), [{ name: 'slow', outcome: 'skipped', count: 0 }]);
  assert.deepEqual(await first.runner.turn(), [{ name: 'slow', outcome: 'skipped', count: 0 }]);
  leave.resolve();
  assert.deepEqual(await long, [{ name: 'slow', outcome: 'done', count: 1 }]);
  assert.equal(runs, 1);
  assert.deepEqual(await second.runner.turn(), [{ name: 'slow', outcome: 'done', count: 1 }]);
  assert.deepEqual(second.reported, [['slow', 1]]);
});

test('a turn whose process died is free once its lease has passed; one that it lost is neither renewed nor given up by it', async (t) => {
  const { url } = await testDatabase(t);
  const { db } = setUp(t, url, []);
  const pass = () => sql`update reconciler set lease_until = now() where name = 'probe'`.execute(db);
  const owner = async () =>
    (await db.selectFrom('reconciler').select('owner').where('name', '=', 'probe').executeTakeFirstOrThrow()).owner;
  const hold = async () => {
    const [entered, leave] = [withResolvers(), withResolvers()];
    const left = withLease(db, 'probe', 0, () => {
      entered.resolve();
      return leave.promise;
    });
    await entered.promise;
    return { leave: leave.resolve, left };
  };
  const first = await hold();
  assert.equal(await withLease(db, 'probe', 0, async () => 'mine'), undefined);
  assert.equal(await withLease(db, 'another', 0, async () => 'mine'), 'mine');
  await pass();
  const second = await hold();
  const present = await owner();
  assert.ok(present);
  first.leave();
  await first.left;
  assert.equal(await owner(), present);
  second.leave();
  await second.left;
  assert.equal(await withLease(db, 'probe', 60_000, async () => 'mine'), undefined, 'the last one began a moment ago');
  assert.equal(await withLease(db, 'probe', 0, async () => 'mine'), 'mine');
});
