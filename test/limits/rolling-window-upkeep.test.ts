import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { RollingWindow } from '../../src/limits/rolling-window.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { testDatabase } from '../support/database.ts';
import { ip, setUp } from './bucket.ts';

test('taking a slot leaves the commits of its connection as durable as they were', async (t) => {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  await new RollingWindow(db, { max: 30, windowSeconds: 60 }, new Metrics()).take(ip('a'));
  const { rows } = await sql<{ synchronous_commit: string }>`show synchronous_commit`.execute(db);
  assert.equal(rows[0]?.synchronous_commit, 'on');
});

test('pruning deletes the buckets that have held no slot for a minute, and none that holds one', async (t) => {
  const { db, clock, limits } = await setUp(t, { max: 30, windowSeconds: 120 });
  await limits.take(ip('old'));
  await clock.advance('90 seconds');
  await limits.take(ip('young'));
  await clock.advance('90 seconds');
  assert.equal(await limits.prune(), 0);
  await clock.advance('0.000001 seconds');
  assert.equal(await limits.prune(), 1);
  assert.equal(await limits.prune(), 0);
  assert.equal((await db.selectFrom('rate_window').select('key').execute()).length, 1);
  assert.equal((await limits.take(ip('young'))).remaining, 28);
  assert.equal((await limits.take(ip('old'))).remaining, 29);
});

test('pruning does not wait for a bucket that is in use', async (t) => {
  const { db, clock, limits } = await setUp(t);
  await limits.take(ip('a'));
  await limits.take(ip('b'));
  await clock.advance('3 minutes');
  await db.transaction().execute(async (holder) => {
    await sql`select from rate_window limit 1 for update`.execute(holder);
    assert.equal(await limits.prune(), 1);
  });
  assert.equal(await limits.prune(), 1);
});
