import { sql } from 'kysely';
import { test } from 'tap';
import { openDatabase, openQueuePool } from '../../src/db/database.ts';
import { testDatabase } from '../support/database.ts';
import { startGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

test('a queue opens on no read-only database, and opens again once it is writable', async (t) => {
  const { url } = await testDatabase(t);
  const name = new URL(url).pathname.slice(1);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const becomeReadOnly = async (value: 'on' | 'off') => {
    await sql`alter database ${sql.ref(name)} set default_transaction_read_only = ${sql.raw(value)}`.execute(db);
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = ${name} and pid <> pg_backend_pid()`.execute(db);
  };
  const traces = t.capture(console, 'trace');
  const settings = { SPEECH_BASE_URL: 'http://127.0.0.1:9/v1', LOG_LEVEL: 'debug' };
  const { log } = await startGateway(t, settings, { databaseUrl: url, worker: true });
  const opened = () => log.filter(({ msg }) => /^queue: Worker connected/.test(msg)).length;
  await until(() => opened() > 0);
  await becomeReadOnly('on');
  await until(() => log.some(({ err }) => /is read-only/.test((err as Error | undefined)?.message ?? '')));
  t.strictSame(traces(), [], 'no worker printed an error');
  const openedBefore = opened();
  await becomeReadOnly('off');
  await until(() => opened() > openedBefore);
});

test('a connection of the queue may be released twice', async (t) => {
  const pool = openQueuePool((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => pool.end());
  await new Promise<void>((resolve, reject) =>
    pool.connect((error, _client, release) => {
      if (error) return reject(error);
      release();
      t.doesNotThrow(() => release());
      resolve();
    }),
  );
  t.equal((await pool.query('select 1')).rowCount, 1);
});
