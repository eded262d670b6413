import assert from 'node:assert/strict';
import { pino } from 'pino';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { ReconcilerRunner } from '../../src/reconcile/runner.ts';
import { startChild } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { until } from '../support/until.ts';

test("a process frozen in a reconciler's turn loses it to another process", async (t) => {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 3 });
  t.teardown(() => db.destroy());
  const row = () => db.selectFrom('reconciler').selectAll().where('name', '=', 'probe').executeTakeFirstOrThrow();

  const frozen = startChild(t, 'test/support/frozen-runner.ts', { DATABASE_URL: url });
  await frozen.printed(/begun/);
  frozen.process.kill('SIGSTOP');
  const { lease_until: leaseUntil } = await row();
  let begun = 0;
  let leave = () => {};
  const left = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const probe = {
    name: 'probe',
    run: () => {
      begun += 1;
      return left;
    },
  };
  const runner = new ReconcilerRunner({ db, reconcilers: [probe], intervalMs: 200, log: pino({ level: 'silent' }) });
  runner.start();
  t.teardown(async () => {
    leave();
    await runner.stop();
  });
  await until(() => begun === 1);
  const taken = await row();
  assert.ok(leaseUntil && taken.started_at >= leaseUntil, 'not before the lease had passed');

  frozen.process.kill('SIGCONT');
  await frozen.printed(/told\nleft/);
  assert.equal((await row()).owner, taken.owner, 'who wakes up gives nothing up that is no longer his');
  assert.equal(begun, 1);
});
