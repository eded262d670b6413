import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import type { SharedParts } from '../../src/features/feature.ts';
import { startPruning } from '../../src/features/pruning.ts';
import type { DatabaseIdentity } from '../../src/ledger/database-identity.ts';
import { pruneNonces } from '../../src/ledger/wallet-holds.ts';
import { RunningWork } from '../../src/lib/running-work.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { RollingWindow } from '../../src/payments/limits/rolling-window.ts';
import { testDatabase } from '../support/database.ts';
import { leaveWindows } from '../support/leave-windows.ts';
import { until } from '../support/until.ts';

/** What one pruning deletes at most, of nonces as of windows. */
const BATCH = 1000;

async function setUp(t: Test) {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 4 });
  t.teardown(() => db.destroy());
  return { db, limits: new RollingWindow(db, { max: 30, windowSeconds: 60 }, new Metrics()) };
}

const leaveNonces = (db: Database, count: number) =>
  sql`
  insert into prepaid_nonce (account_id, nonce, hold_id, spent_at)
  select gen_random_uuid(), 'nonce', gen_random_uuid(), now() - make_interval(hours => 30, secs => n)
  from generate_series(1, ${count}::int) n`.execute(db);

const countOf = async (db: Database, table: 'prepaid_nonce' | 'rate_window') => {
  const { rows } = await sql<{ count: bigint }>`select count(*) from ${sql.table(table)}`.execute(db);
  return Number(rows[0]?.count);
};

for (const [table, leave, pruneOf] of [
  ['prepaid_nonce', leaveNonces, ({ db }) => pruneNonces(db)],
  ['rate_window', leaveWindows, ({ limits }) => limits.prune()],
] as [
  'prepaid_nonce' | 'rate_window',
  (db: Database, count: number) => Promise<unknown>,
  (parts: { db: Database; limits: RollingWindow }) => Promise<number>,
][]) {
  test(`a backlog in ${table} is pruned in committed batches, without waiting for locked rows`, async (t) => {
    const parts = await setUp(t);
    await leave(parts.db, BATCH + 500);
    for (const [pruned, left] of [
      [BATCH, 500],
      [500, 0],
      [0, 0],
    ]) {
      t.equal(await pruneOf(parts), pruned);
      t.equal(await countOf(parts.db, table), left);
    }
    await leave(parts.db, 3 * BATCH);
    await parts.db.transaction().execute(async (holder) => {
      await sql`select from ${sql.table(table)} limit 10 for update`.execute(holder);
      const pruned = await Promise.all([pruneOf(parts), pruneOf(parts), pruneOf(parts)]);
      t.equal(pruned[0] + pruned[1] + pruned[2], 3 * BATCH - 10);
    });
    t.equal(await pruneOf(parts), 10);
  });
}

test('pruning runs one batch at a time until done and stops between batches', async (t) => {
  const { db } = await setUp(t);
  let [left, running, most] = [5, 0, 0];
  const prune = async () => {
    most = Math.max(most, ++running);
    await sleep(30);
    running--;
    return left > 0 ? left-- : 0;
  };
  const work = new RunningWork();
  const shared = {
    ...{ db, work, limits: { prune }, log: { warn: (fault: unknown) => assert.fail(String(fault)) } },
    config: { reconcileIntervalMs: 10, rateLimit: { windowSeconds: 60 } },
  } as unknown as SharedParts;
  const stop = startPruning(shared, { check: async () => undefined } as unknown as DatabaseIdentity);
  t.teardown(stop);
  await until(() => left === 0);
  t.equal(most, 1);
  left = Number.POSITIVE_INFINITY;
  await until(() => running === 1);
  stop();
  await work.idle();
  t.equal(running, 0);
});
