import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { Migrator, sql } from 'kysely';
import pg, { type ClientBase } from 'pg';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { migrate, pendingMigrations } from '../../src/db/migrate.ts';
import { readSqlFiles, type SqlFile } from '../../src/db/sql-files.ts';
import { emptyDatabase, testDatabase } from '../support/database.ts';
import { until } from '../support/until.ts';

/** Tables whose rows don't grow with use: reading or rewriting them all takes no time. */
const SMALL = [
  ...['instance', 'reconciler', 'x402_payee', 'processor_list', 'paused_flow', 'audit_result'],
  ...['schema_migration', 'schema_migration_lock'],
];

/** Changing more rows than this of a table at once keeps too many of them from requests until it is committed. */
const MOST_CHANGED = 100;

/** Modes that keep requests from writing, or from reading, too. */
const BLOCKING = ['ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'];

const TABLES = `
  select relname as name, relfilenode as file,
         coalesce(pg_stat_get_xact_numscans(oid), 0)::int as scans,
         (coalesce(pg_stat_get_xact_tuples_updated(oid), 0) + coalesce(pg_stat_get_xact_tuples_deleted(oid), 0))::int
           as changed,
         exists (select from pg_locks where pid = pg_backend_pid() and relation = oid and granted and mode = any($1))
           as blocked
  from pg_class
  where relkind = 'r' and relnamespace = 'public'::regnamespace and not relname = any($2)`;

/** Where tables are big, an index is used that is there. */
const BY_INDEX = 'set local enable_seqscan = off; set local enable_indexscan = on; set local enable_indexonlyscan = on';
/** The check of a new reference reads whole tables, whichever way it reads them. */
const READING_ALL =
  'set local enable_seqscan = on; set local enable_indexscan = off; set local enable_indexonlyscan = off';

interface Table {
  readonly name: string;
  /** Another one when it was rewritten. */
  readonly file: number;
  /** Sequential scans of this transaction, those of an index's build and of a constraint's check included. */
  readonly scans: number;
  /** Rows that this transaction has updated or deleted. */
  readonly changed: number;
  /** This transaction keeps others from it. */
  readonly blocked: boolean;
}

/**
 * Runs a migration in a transaction, and tells what in it would keep requests waiting where tables are big: a table that
 * is rewritten; one that is read wholly while it, or another one, is locked against writes; many rows that are changed.
 * Tables that the migration itself makes don't count. The transaction is left open.
 */
async function blockingStatements(client: ClientBase, text: string): Promise<string[]> {
  const read = async (): Promise<Map<string, Table>> => {
    const { rows } = await client.query<Table>(TABLES, [BLOCKING, SMALL]);
    return new Map(rows.map((table) => [table.name, table]));
  };
  await client.query('begin');
  const first = await read();
  const faults = new Set<string>();
  let before = first;
  for (const statement of statementsOf(text)) {
    await client.query(/^(alter|create)\b/i.test(statement) ? READING_ALL : BY_INDEX);
    await client.query(statement);
    const after = await read();
    const old = [...after.values()].filter(({ name }) => first.has(name));
    const blocked = old
      .filter((table) => table.blocked)
      .map(({ name }) => name)
      .sort();
    for (const { name, file, scans, changed } of old) {
      const was = before.get(name) as Table;
      if (file !== was.file) faults.add(`rewrites ${name}`);
      else if (scans > was.scans && blocked.length > 0)
        faults.add(`reads ${name} while it locks ${blocked.join(', ')}`);
      if (changed - was.changed > MOST_CHANGED) faults.add(`changes many rows of ${name}`);
    }
    before = after;
  }
  return [...faults];
}

/** Comments, quoted text and functions' bodies as they are, in which a semicolon ends nothing. */
const PART = /--[^\n]*|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$[\s\S]*?\$\1\$|;|[\s\S]/g;

/** The statements of an SQL file. */
function statementsOf(text: string): string[] {
  const statements: string[] = [];
  let statement = '';
  for (const [part] of text.matchAll(PART)) {
    if (part.startsWith('--')) continue;
    if (part !== ';') statement += part;
    else {
      statements.push(statement.trim());
      statement = '';
    }
  }
  return [...statements, statement.trim()].filter(Boolean);
}

/** The newest migration of the first release, each of which makes an area's tables; before it there is nothing to upgrade. */
const BASELINE = '0008_operators';

const migrationFiles = (): Promise<SqlFile[]> => readSqlFiles('migrations');

/** Applies these migrations as `src/db/migrate.ts` notes them, as a release that knows no others would have. */
async function applyMigrations(db: Database, files: readonly SqlFile[]): Promise<void> {
  const migrator = new Migrator({
    db,
    provider: {
      getMigrations: async () =>
        Object.fromEntries(
          files.map(({ name, text }) => [name, { up: async (on) => void (await sql.raw(text).execute(on)) }]),
        ),
    },
    migrationTableName: 'schema_migration',
    migrationLockTableName: 'schema_migration_lock',
  });
  const { error } = await migrator.migrateToLatest();
  if (error) throw error;
}

/** Brings an empty database to the schema that this migration leaves. */
async function migrateUpTo(url: string, last: string): Promise<void> {
  const db = openDatabase(url, { maxConnections: 1 });
  try {
    await applyMigrations(
      db,
      (await migrationFiles()).filter(({ name }) => name <= last),
    );
  } finally {
    await db.destroy();
  }
}

/** Rows of the tables that grow. */
const ROWS = `
  insert into account (kind, balance_micro_usd) select 'card', 1000 from generate_series(1, 500);
  insert into account (kind, balance_micro_usd, address)
    select 'wallet', 1000, '0x' || lpad(to_hex(n), 40, '0') from generate_series(1, 500) n;
  insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, lease_until)
    select 'charge', 'pending', id, '00000000-0000-4000-8000-000000000002', 1, now() from account where kind = 'card';
  insert into prepaid_nonce (account_id, nonce, hold_id)
    select id, 'one', gen_random_uuid() from account where kind = 'wallet';
  insert into top_up (state, account_id, amount_cents, session_id)
    select 'open', id, 500, 'cs_test_' || id from account where kind = 'card';
  insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                            valid_before, head_block, settling_at, failed_at)
    select 'failed', n, '', 'eip155:8453', '0xa', '0xb', n, '0xc', 1, 1, 1, now(), now() from generate_series(1, 500) n;
  insert into rate_window (scope, key, checked_at, allowed, taken)
    select 'requests', n::text::bytea, now(), true, '{}' from generate_series(1, 500) n`;

async function connect(t: Test, url: string): Promise<pg.Client> {
  const client = new pg.Client(url);
  await client.connect();
  t.teardown(() => client.end());
  return client;
}

test('no migration rewrites or scans a big table while it blocks requests', async (t) => {
  const { url } = await emptyDatabase(t);
  const files = await migrationFiles();
  const db = openDatabase(url, { maxConnections: 1 });
  await applyMigrations(
    db,
    files.filter(({ name }) => name <= BASELINE),
  );
  await db.destroy();
  const client = await connect(t, url);
  await client.query(ROWS);
  for (const { name, text } of files.filter(({ name }) => name > BASELINE)) {
    t.strictSame(await blockingStatements(client, text), [], name);
    await client.query('commit');
  }
});

const REFUSED: Readonly<Record<string, [migration: string, fault: RegExp]>> = {
  'a stored column': [
    'alter table account add column cents bigint generated always as (balance_micro_usd / 10000) stored',
    /^rewrites account$/,
  ],
  'an index': ['create index on transfer (created_at)', /^reads transfer while it locks transfer$/],
  'a constraint that is checked at once': [
    "alter table account add constraint young check (created_at > now()  - interval '1 day')",
    /^reads account while it locks account$/,
  ],
  'a reference that is checked at once': [
    'alter table prepaid_nonce add constraint of_hold foreign key (hold_id) references transfer (id)',
    /^reads prepaid_nonce while it locks/,
  ],
  'reading one table while another one is locked': [
    `alter table job add column mark text;
     update instance set id = (select id from account where balance_micro_usd = 7 limit 1) where false;
     select count(*) from transfer where amount_micro_usd = 7;`,
    /^reads transfer while it locks job$/,
  ],
  'a change of all rows': [
    "update account set is_indebted = false where kind = 'card'",
    /^changes many rows of account$/,
  ],
};

test('a migration that would block requests is detected', async (t) => {
  const { url } = await testDatabase(t);
  const client = await connect(t, url);
  await client.query("insert into account (kind, balance_micro_usd) select 'card', 1 from generate_series(1, 500)");
  for (const [name, [migration, fault]] of Object.entries(REFUSED)) {
    const faults = await blockingStatements(client, migration);
    t.ok(
      faults.some((line) => fault.test(line)),
      `${name}: ${faults.join('; ') || 'not refused'}`,
    );
    await client.query('rollback');
  }
});

test('a migration waits for a long write without blocking other requests', async (t) => {
  const { url } = await emptyDatabase(t);
  await migrateUpTo(url, '0007_feedback');
  const [writer, caller, observer] = [await connect(t, url), await connect(t, url), await connect(t, url)];
  await writer.query('begin; lock table transfer in row exclusive mode');
  const done = migrate(url);
  const waiting = async () => {
    const { rowCount } = await observer.query(
      "select from pg_locks where not granted and relation = 'transfer'::regclass",
    );
    return rowCount === 1;
  };
  for (let round = 0; round < 2; round++) {
    await until(waiting);
    // It waits behind the migration, until that gives up its turn.
    await caller.query('update transfer set fence = fence where false');
  }
  await writer.query('commit');
  t.strictSame((await done).applied, ['0008_operators', '0009_tax']);
});

test('each migration commits by itself, so those before a failure stay', async (t) => {
  const { url } = await emptyDatabase(t);
  await migrateUpTo(url, '0006_prepaid');
  const client = await connect(t, url);
  // In the way of 0008.
  await client.query('create table audit_result ()');
  await t.rejects(migrate(url), /audit_result/);
  const { rows } = await client.query('select name from schema_migration order by name desc limit 1');
  t.strictSame(rows, [{ name: '0007_feedback' }]);
});

test('an older release accepts a newer schema and changes nothing', async (t) => {
  const { url } = await testDatabase(t);
  const client = await connect(t, url);
  await client.query("insert into schema_migration (name, timestamp) values ('9999_later', '2100-01-01')");
  const { applied, newer, hasGranted } = await migrate(url, 'postgres');
  t.strictSame({ applied, newer, hasGranted }, { applied: [], newer: ['9999_later'], hasGranted: false });
});

test('what is pending can be read while another process replaces a table', async (t) => {
  const { url } = await testDatabase(t);
  const other = await connect(t, url);
  await other.query('create table replaced (id int)');
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const reader = db.transaction().setIsolationLevel('repeatable read');
  await reader.execute(async (trx) => {
    await sql`select count(*) from pg_class`.execute(trx);
    await other.query('drop table replaced');
    assert.deepEqual(await pendingMigrations(trx), [], 'though its snapshot still has the table');
  });
});

test('parallel replicas apply each migration to an empty database once', async (t) => {
  const { url } = await emptyDatabase(t);
  const runs = await Promise.all([migrate(url), migrate(url), migrate(url)]);
  const applied = runs.flatMap((run) => run.applied);
  t.ok(applied.length > 0);
  t.equal(new Set(applied).size, applied.length);
  t.strictSame((await migrate(url)).applied, []);
});

test('a schema of the name of the role, and settings of role and URL, change nothing', async (t) => {
  const { url } = await emptyDatabase(t);
  const owner = await connect(t, url);
  const role = `odd_${randomUUID().slice(0, 8)}`;
  const database = new URL(url).pathname.slice(1);
  await owner.query(`
    create role ${role} login password 'odd';
    alter database ${database} owner to ${role};
    create schema authorization ${role};
    create table ${role}.schema_migration (name text);
    alter role ${role} set search_path = ${role};
    alter role ${role} set datestyle = 'German';
    alter role ${role} set array_nulls = off;
    alter role ${role} set synchronous_commit = off;
    alter role ${role} set statement_timeout = '9s';
    alter role ${role} set idle_in_transaction_session_timeout = '9s';`);
  t.teardown(() => owner.query(`reassign owned by ${role} to current_user; drop owned by ${role}; drop role ${role}`));
  const odd = Object.assign(new URL(url), { username: role, password: 'odd' });
  odd.search = `?statement_timeout=1&options=${encodeURIComponent(`-c search_path=${role} -c intervalstyle=iso_8601`)}`;
  await migrate(odd.href, role);
  const { rows } = await owner.query('select relname from pg_class where relnamespace = $1::regnamespace', [role]);
  t.strictSame(rows, [{ relname: 'schema_migration' }]);

  const db = openDatabase(odd.href, { maxConnections: 1, statementTimeoutMs: 5_000 });
  t.teardown(() => db.destroy());
  const { rows: told } = await sql<Record<string, unknown>>`
    select now() as at, ${[null, 'a']}::text[] as list, current_setting('synchronous_commit') as commit,
           current_setting('statement_timeout') as timeout, current_setting('plan_cache_mode') as plans,
           current_setting('IntervalStyle') as intervals, current_setting('search_path') as path`.execute(db);
  t.ok(told[0]?.at instanceof Date);
  t.strictSame(
    { ...told[0], at: undefined },
    {
      ...{ at: undefined, list: [null, 'a'], commit: 'on', timeout: '5s', plans: 'force_generic_plan' },
      ...{ intervals: 'postgres', path: 'public' },
    },
  );

  const tool = openDatabase(odd.href, { maxConnections: 1, statementTimeoutMs: 0 });
  t.teardown(() => tool.destroy());
  const { rows: limits } = await sql`
    select current_setting('statement_timeout') as statement,
           current_setting('idle_in_transaction_session_timeout') as idle`.execute(tool);
  t.strictSame(limits, [{ statement: '0', idle: '0' }]);
});
