import assert from 'node:assert/strict';
import type pg from 'pg';
import { t, test } from 'tap';
import { openPool, openQueuePool } from '../../src/db/database.ts';
import { testDatabase } from '../support/database.ts';
import { startGateway } from '../support/gateway.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

/** The server gives a statement up after this time, and the client 2 s later. */
const STATEMENT_TIMEOUT_MS = 1_000;

// They only wait.
t.jobs = 3;

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
  test(`connections of ${name} to a dead server time out and are replaced`, async (t) => {
    const { url } = await testDatabase(t);
    const isReplaced = async (text: string, values?: unknown[]) => {
      const proxy = await startTcpProxy(t, url);
      const pool = open(proxy.url, { maxConnections: 1, statementTimeoutMs: STATEMENT_TIMEOUT_MS });
      t.teardown(() => pool.end());
      assert.deepEqual(await ask(pool, text, values), [{ one: 1 }]);
      proxy.abandon();
      await assert.rejects(ask(pool, text, values), /Query read timeout/);
      assert.deepEqual(await ask(pool, text, values), [{ one: 1 }], 'by another connection');
    };
    await Promise.all([isReplaced('select $1::int as one', [1]), isReplaced('select 1 as one')]);
  });
}

test('a database that accepts connections but never responds is 503', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const gateway = await startGateway(t, {}, { databaseUrl: proxy.url });
  const account = await gateway.fund(500);
  proxy.freeze();
  const launcher = gateway.call(`/top-up?account=${account}`);
  const replies = await Promise.all([
    gateway.call(`/credits/${account}`),
    gateway.call('/tts?text=hello', { headers: { 'x-credit-account': account } }),
    gateway.call(`/top-up/status?account=${account}`),
  ]);
  for (const reply of replies) {
    t.equal(reply.status, 503);
    t.equal(reply.json.error.code, 'CONFIG_ERROR');
  }
  t.equal((await launcher).status, 200, 'the launcher needs no database');
  proxy.restore();
  t.equal((await gateway.call(`/credits/${account}`)).status, 200);
});
