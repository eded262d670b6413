import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { openContext } from '../../src/operators/doctor/check.ts';
import { DATABASE_CHECKS } from '../../src/operators/doctor/database-checks.ts';
import { runChecks } from '../../src/operators/doctor/run-checks.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startChild, startCommand } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { startGateway } from '../support/gateway.ts';
import { missingProgram } from '../support/missing-program.ts';
import { configOf } from '../support/setting.ts';
import { severalSettings } from '../support/several-processes.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const skip = missingProgram('pgbouncer', '--version') ?? false;
const IGNORED = 'statement_timeout,idle_in_transaction_session_timeout,options';

/** PgBouncer in transaction mode in front of this database; Debian's keeps no named statements. */
async function startPgbouncer(t: Test, databaseUrl: string, ignored = IGNORED): Promise<string> {
  const folder = await temporaryFolder(t);
  await chmod(folder, 0o755);
  const { hostname, port, username, password, pathname } = new URL(databaseUrl);
  const listenPort = await freePort();
  const settings = [
    '[databases]',
    `${pathname.slice(1)} = host=${hostname} port=${port} user=${username} password=${decodeURIComponent(password)}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${listenPort}`,
    'unix_socket_dir =',
    'auth_type = any',
    'pool_mode = transaction',
    ...(ignored ? [`ignore_startup_parameters = ${ignored}`] : []),
  ];
  await writeFile(join(folder, 'pgbouncer.ini'), settings.join('\n'));
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  await startCommand(t, ['pgbouncer', ...user, join(folder, 'pgbouncer.ini')], {}).printed(/process up/);
  const url = new URL(databaseUrl);
  url.host = `127.0.0.1:${listenPort}`;
  return url.href;
}

/** What doctor finds about the database. */
async function examine(env: Record<string, string>) {
  const options = { misspelt: [], keysFile: undefined, isSandbox: true, speaks: false, now: Date.now };
  const context = openContext({ ...options, config: configOf(env) });
  const found = new Map<string, { readonly state: string; readonly message: string; readonly fix?: string }>();
  const checks = DATABASE_CHECKS.filter(({ name }) => name === 'database' || name === 'pooler');
  for await (const finding of runChecks(checks, context, new Set())) found.set(finding.name, finding);
  await context.db.destroy();
  return found;
}

test('a pooler without named statements ends the start with 78, and is named', { skip }, async (t) => {
  const { url } = await testDatabase(t);
  const DATABASE_URL = await startPgbouncer(t, url);
  const { env } = await severalSettings(t, { WEB_CONCURRENCY: '1', DATABASE_URL });
  const child = startChild(t, 'src/main.ts', env);
  t.equal(await child.ended(), 78);
  t.match(child.output(), /DATABASE_URL can't be used .+prepared statement.+ Set max_prepared_statements = 200 in/);

  const pooler = (await examine({ DATABASE_URL })).get('pooler');
  assert.equal(pooler?.state, 'fault');
  t.match(
    `${pooler.message} ${pooler.fix}`,
    /Prepared statements fail behind a pooler: .+DATABASE_NAMED_STATEMENTS=off/,
  );

  // A gateway that has started is not ready.
  const { app } = await startGateway(t, {}, { databaseUrl: DATABASE_URL });
  const other = openDatabase(DATABASE_URL);
  t.teardown(() => other.destroy());
  await sql`/* readiness */ select ${1}::int`.execute(other).catch(() => undefined);
  const ready = await app.admin.inject('/readyz');
  t.equal(ready.statusCode, 503);
  t.match(
    ready.json().checks.database,
    /^DATABASE_URL can't be used \(.+ Set max_prepared_statements = 200 in PgBouncer/,
  );
});

test('without named statements the start succeeds, and doctor says what to give the role', { skip }, async (t) => {
  const { url } = await testDatabase(t);
  const DATABASE_URL = await startPgbouncer(t, url);
  const DATABASE_NAMED_STATEMENTS = 'off';
  const { env } = await severalSettings(t, { WEB_CONCURRENCY: '1', DATABASE_URL, DATABASE_NAMED_STATEMENTS });
  const child = startChild(t, 'src/main.ts', env);
  await child.printed(/listens on/);
  t.equal(await child.stop(), 0);
  const pooler = (await examine({ DATABASE_URL, DATABASE_NAMED_STATEMENTS })).get('pooler');
  assert.equal(pooler?.state, 'warning');
  for (const setting of [
    "statement_timeout = '10s'",
    "plan_cache_mode = 'force_generic_plan'",
    "enable_seqscan = 'off'",
  ])
    assert.ok(pooler.fix?.includes(`alter role ${new URL(url).username} set ${setting}`), pooler.fix);
  t.equal((await examine({ DATABASE_URL: url })).get('pooler')?.state, 'ok', 'without a pooler');
});

test('a pooler that refuses our parameters ends the start with 78, and doctor names them', { skip }, async (t) => {
  const { url } = await testDatabase(t);
  const DATABASE_URL = await startPgbouncer(t, url, '');
  const { env } = await severalSettings(t, { WEB_CONCURRENCY: '1', DATABASE_URL });
  const child = startChild(t, 'src/main.ts', env);
  t.equal(await child.ended(), 78);
  t.match(child.output(), /unsupported startup parameter: .+ Set ignore_startup_parameters = statement_timeout,/);
  const database = (await examine({ DATABASE_URL })).get('database');
  assert.equal(database?.state, 'fault');
  t.match(database.fix ?? '', /^Set ignore_startup_parameters = /);
});
