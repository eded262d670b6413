import assert from 'node:assert/strict';
import pg from 'pg';
import { type Test, test } from 'tap';
import { LOCK_TIMEOUT_MS } from '../../src/db/brief-locks.ts';
import { migrate } from '../../src/db/migrate.ts';
import { emptyDatabase, testDatabase } from '../support/database.ts';
import { migrateUpTo, migrationFiles } from '../support/migrations.ts';
import { until } from '../support/until.ts';

async function connect(t: Test, url: string): Promise<pg.Client> {
  const client = new pg.Client(url);
  await client.connect();
  t.teardown(() => client.end());
  return client;
}

test('who reads for long keeps a migration waiting, and nobody waits behind it', async (t) => {
  const { url } = await emptyDatabase(t);
  await migrateUpTo(url, '0020_watching');
  const [reader, caller, observer] = [await connect(t, url), await connect(t, url), await connect(t, url)];
  await reader.query('begin; select from prepaid_nonce');
  const done = migrate(url);
  const waiting = async () => {
    const { rowCount } = await observer.query(
      "select from pg_locks where not granted and relation = 'prepaid_nonce'::regclass",
    );
    return rowCount === 1;
  };
  for (let round = 0; round < 2; round++) {
    await until(waiting);
    const begunAt = performance.now();
    await caller.query('select from prepaid_nonce');
    const waitedMs = performance.now() - begunAt;
    assert.ok(waitedMs < LOCK_TIMEOUT_MS + 500, `a request waited ${waitedMs} ms`);
  }
  await reader.query('commit');
  const last = (await migrationFiles()).map(({ name }) => name).filter((name) => name > '0020_watching');
  assert.deepEqual((await done).applied, last);
});

test('each migration is a transaction of its own: those before one that fails stay', async (t) => {
  const { url } = await emptyDatabase(t);
  await migrateUpTo(url, '0018_upstream');
  const client = await connect(t, url);
  // In the way of 0020.
  await client.query('create table audit_result ()');
  await assert.rejects(migrate(url), /audit_result/);
  const { rows } = await client.query('select name from schema_migration order by name desc limit 1');
  assert.deepEqual(rows, [{ name: '0019_operators' }]);
});

test('a release that finds the schema of a newer one changes nothing, and works with it', async (t) => {
  const { url } = await testDatabase(t);
  const client = await connect(t, url);
  await client.query("insert into schema_migration (name, timestamp) values ('9999_later', '2100-01-01')");
  const { applied, newer, hasGranted } = await migrate(url, 'postgres');
  assert.deepEqual({ applied, newer, hasGranted }, { applied: [], newer: ['9999_later'], hasGranted: false });
});
