import assert from 'node:assert/strict';
import pg from 'pg';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { emptyDatabase, testDatabase } from '../support/database.ts';
import { blockingStatements, statementsOf } from '../support/migration-rules.ts';
import { applyMigrations, FIRST_RELEASE, migrationFiles } from '../support/migrations.ts';

/**
 * What migrations do that were released before this was asked of them; what has been applied can't be changed. All but
 * one build partial indexes of a table that they also add a column to. 0011 marks what has failed, which is rare; 0016
 * rewrites the windows of the last minutes.
 */
const RELEASED: Readonly<Record<string, readonly string[]>> = {
  '0009_fair_queue': ['reads job while it locks job', 'reads top_up while it locks job, top_up'],
  '0011_identity': ['reads x402_payment while it locks x402_payment', 'changes many rows of x402_payment'],
  '0016_growth': [
    'rewrites rate_window',
    'reads rate_window while it locks rate_window',
    'reads x402_payment while it locks rate_window, x402_payment',
    'reads top_up while it locks rate_window, top_up, x402_payment',
    'reads job while it locks job, rate_window, top_up, x402_payment',
  ],
  '0017_clawbacks': ['reads account while it locks account', 'reads top_up while it locks account, top_up'],
};

/** Rows of the tables that grow, by columns that they have had since the first release. */
const ROWS = `
  insert into account (kind, balance_micro_usd) select 'card', 1000 from generate_series(1, 500);
  insert into account (kind, balance_micro_usd, address)
    select 'wallet', 1000, '0x' || lpad(to_hex(n), 40, '0') from generate_series(1, 500) n;
  insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, lease_until)
    select 'charge', 'pending', id, '00000000-0000-4000-8000-000000000002', 1, now() from account where kind = 'card';
  insert into prepaid_nonce (account_id, nonce) select id, 'one' from account where kind = 'wallet';
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

test('no migration rewrites a big table, nor keeps requests waiting while it reads one', async (t) => {
  const { url } = await emptyDatabase(t);
  const files = await migrationFiles();
  const db = openDatabase(url, { maxConnections: 1 });
  await applyMigrations(
    db,
    files.filter(({ name }) => name <= FIRST_RELEASE),
  );
  await db.destroy();
  const client = await connect(t, url);
  await client.query(ROWS);
  const found: Record<string, string[]> = {};
  for (const { name, text } of files.filter(({ name }) => name > FIRST_RELEASE)) {
    const faults = await blockingStatements(client, text);
    await client.query('commit');
    if (faults.length > 0) found[name] = faults;
  }
  assert.deepEqual(found, RELEASED);
});

const REFUSED: Readonly<Record<string, [migration: string, fault: RegExp]>> = {
  'a stored column': [
    'alter table account add column cents bigint generated always as (balance_micro_usd / 10000) stored',
    /^rewrites account$/,
  ],
  'a default of each row': [
    'alter table transfer add column mark uuid default gen_random_uuid()',
    /^rewrites transfer$/,
  ],
  'another type': ['alter table transfer alter column fence type bigint', /^rewrites transfer$/],
  'an index': ['create index on transfer (created_at)', /^reads transfer while it locks transfer$/],
  'a constraint that is checked at once': [
    "alter table account add constraint young check (created_at > now()  - interval '1 day')",
    /^reads account while it locks account$/,
  ],
  'a column that is never null': [
    'alter table top_up alter column challenge_id set not null',
    /^reads top_up while it locks top_up$/,
  ],
  'a reference that is checked at once': [
    'alter table lost_answer add constraint of_hold foreign key (hold_id) references transfer (id)',
    /^reads lost_answer while it locks/,
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

test('a migration that would is refused', async (t) => {
  const { url } = await testDatabase(t);
  const client = await connect(t, url);
  await client.query("insert into account (kind, balance_micro_usd) select 'card', 1 from generate_series(1, 500)");
  for (const [name, [migration, fault]] of Object.entries(REFUSED)) {
    const faults = await blockingStatements(client, migration);
    assert.ok(
      faults.some((line) => fault.test(line)),
      `${name}: ${faults.join('; ') || 'not refused'}`,
    );
    await client.query('rollback');
  }
});

test('one that makes a table, a column without a value, or a constraint for later is not', async (t) => {
  const { url } = await testDatabase(t);
  const client = await connect(t, url);
  const migration = `
    create table bonus (id bigint primary key references transfer (id), note text); -- a new one; of no rows
    create index bonus_note on bonus (note);
    alter table transfer add column note text default 'a; b', add constraint noted check (note <> '') not valid;
    create function nothing() returns int language plpgsql as $$ begin return 1; end $$;`;
  assert.equal(statementsOf(migration).length, 4);
  assert.deepEqual(await blockingStatements(client, migration), []);
  await client.query('rollback');
});
