import assert from 'node:assert/strict';
import { test } from 'tap';
import { createAdminServer } from '../../src/admin/admin-server.ts';
import { openDatabase } from '../../src/db/database.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { testDatabase } from '../support/database.ts';

test('of several processes one that listens is enough to be ready, and it is told how many do', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  let listening = 0;
  const processes = () => ({ listening, wanted: 2 });
  const admin = createAdminServer({
    db,
    metrics: new Metrics(),
    names: [],
    leaving: new AbortController().signal,
    processes,
  });
  t.teardown(() => admin.close());
  for (const [count, code, status] of [
    [0, 503, 'not ready'],
    [1, 200, 'ok'],
    [2, 200, 'ok'],
  ] as const) {
    listening = count;
    const { statusCode, body } = await admin.inject('/readyz');
    const checks = { database: 'ok', schema: 'ok', processes: `${count} of 2 listen` };
    assert.deepEqual([statusCode, JSON.parse(body)], [code, { status, checks }]);
  }
});

test('who is to stop is not ready', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const admin = createAdminServer({ db, metrics: new Metrics(), names: [], leaving: AbortSignal.abort() });
  t.teardown(() => admin.close());
  const { statusCode, body } = await admin.inject('/readyz');
  const checks = { database: 'ok', schema: 'ok', stopping: 'it finishes what runs' };
  assert.deepEqual([statusCode, JSON.parse(body)], [503, { status: 'not ready', checks }]);
});
