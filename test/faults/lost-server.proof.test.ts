import assert from 'node:assert/strict';
import type pg from 'pg';
import { test } from 'tap';
import { openPool } from '../../src/db/database.ts';
import { openQueuePool } from '../../src/db/queue-pool.ts';
import { testDatabase } from '../support/database.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

/** The server gives a statement up after this time, and the client 2 s later. */
const STATEMENT_TIMEOUT_MS = 1_000;

/** As Kysely asks, which tells the pool of no error. */
async function ask(pool: pg.Pool, text: string, values?: unknown[]): Promise<unknown[]> {
  const client = await pool.connect();
  try {
    return (await client.query(text, values)).rows;
  } finally {
    client.release();
  }
}

for (const [name, open] of [
  ['requests', openPool],
  ['the queue', openQueuePool],
] as const) {
  test(`connections of ${name} to a machine that died without a farewell are given up, and others made`, async (t) => {
    const proxy = await startTcpProxy(t, (await testDatabase(t)).url);
    const pool = open(proxy.url, { maxConnections: 1, statementTimeoutMs: STATEMENT_TIMEOUT_MS });
    t.teardown(() => pool.end());
    for (const [text, values] of [['select $1::int as one', [1]], ['select 1 as one']] as const) {
      assert.deepEqual(await ask(pool, text, values && [...values]), [{ one: 1 }]);
      proxy.abandon();
      await assert.rejects(ask(pool, text, values && [...values]), /Query read timeout/);
    }
    assert.deepEqual(await ask(pool, 'select 1 as one'), [{ one: 1 }], 'by another connection');
  });
}
