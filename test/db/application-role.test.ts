import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { readRoleRights } from '../../src/db/role-rights.ts';
import { audit } from '../../src/ledger/audit.ts';
import { contra } from '../../src/ledger/contra.ts';
import { pruneNonces } from '../../src/ledger/wallets.ts';
import { pauseFlows, resumeFlows } from '../../src/operators/pauses.ts';
import { testDatabase } from '../support/database.ts';
import { later, untilJob } from '../support/jobs.ts';
import { depositor, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';

/** A role that only this test has, and a database that was migrated for it. */
async function withRole(t: Test): Promise<{ owner: Database; role: string; ownerUrl: string; url: string }> {
  const { url: ownerUrl } = await testDatabase(t);
  const role = `speechgate_app_${randomBytes(6).toString('hex')}`;
  const owner = openDatabase(ownerUrl, { maxConnections: 1 });
  await sql`create role ${sql.ref(role)} login password 'secret'`.execute(owner);
  t.teardown(async () => {
    await sql`drop owned by ${sql.ref(role)}`.execute(owner);
    await sql`drop role ${sql.ref(role)}`.execute(owner);
    await owner.destroy();
  });
  const url = new URL(ownerUrl);
  url.username = role;
  url.password = 'secret';
  return { owner, role, ownerUrl, url: url.href };
}

test('the application works with a role of its own, which can neither delete nor rewrite what was booked', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  assert.equal((await migrate(ownerUrl, role)).hasGranted, true);
  // Twice, by replicas at the same time.
  await Promise.all([migrate(ownerUrl, role), migrate(ownerUrl, role)]);

  const gateway = await startPrepaidGateway(t, {}, { databaseUrl: url });
  const account = await gateway.fund(500);
  const card = await gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': account } });
  assert.equal(card.status, 200);
  const { sign } = await depositor(gateway, 1000n);
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200);
  const { jobId } = (await later(gateway, account)).json;
  gateway.app.worker?.start();
  assert.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  for (const { name, outcome } of await gateway.app.reconcilers.turn()) {
    if (!['top_ups', 'checkout_sweep', 'clawback_sweep'].includes(name)) assert.equal(outcome, 'done', name);
  }
  assert.equal(await pruneNonces(gateway.db), 0);
  assert.deepEqual(await audit(gateway.db), []);

  for (const statement of [
    sql`delete from transfer`,
    sql`truncate transfer`,
    sql`update transfer set amount_micro_usd = 1`,
    sql`update transfer set debit_account_id = credit_account_id`,
    sql`delete from account`,
    sql`update account set kind = 'card'`,
    sql`delete from job`,
    sql`update job set hold_id = 1`,
    sql`update prepaid_nonce set spent_at = now()`,
    sql`update instance set id = gen_random_uuid()`,
    sql`delete from schema_migration`,
    sql`alter table transfer disable trigger user`,
    sql`create or replace function refuse_change() returns trigger language plpgsql as 'begin return new; end'`,
  ]) {
    await assert.rejects(statement.execute(gateway.db), { code: '42501' });
  }
  await assert.rejects(sql`update prepaid_nonce set account_id = account_id`.execute(gateway.db), { code: '23000' });
  await assert.rejects(sql`delete from top_up`.execute(gateway.db), { code: '23000' });
  await assert.rejects(sql`delete from x402_payment`.execute(gateway.db), { code: '23000' });
  assert.deepEqual(await audit(owner), []);

  await sql`revoke usage on sequence transfer_id_seq from ${sql.ref(role)}`.execute(owner);
  const refused = await gateway.call(TTS, await sign(TTS, HELLO));
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'CONFIG_ERROR'], 'the operator has to act');
});

test('the application can’t choose the ids that the database gives', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  await migrate(ownerUrl, role);
  const app = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => app.destroy());
  const { rows } = await sql<{ table: string; column: string }>`
    select attrelid::regclass::text as table, attname as column from pg_attribute
    where attidentity <> '' and attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)
    order by 1`.execute(owner);
  assert.deepEqual(
    rows.map(({ table }) => table),
    ['gateway_process', 'operator_action', 'transfer', 'x402_payment'],
  );
  for (const { table, column } of rows.filter(({ table }) => table !== 'transfer')) {
    await assert.rejects(
      sql`insert into ${sql.table(table)} (${sql.ref(column)}) overriding system value values (7)`.execute(app),
      { code: '42501' },
      table,
    );
  }
  await sql`grant insert (id) on x402_payment to ${sql.ref(role)}`.execute(owner);
  assert.deepEqual((await readRoleRights(app)).excess, ['choose ids in x402_payment']);
  await migrate(ownerUrl, role);
  const { missing, excess } = await readRoleRights(app);
  assert.deepEqual([missing, excess], [[], []]);
  await assert.rejects(sql`select setval('transfer_id_seq', 7)`.execute(app), { code: '42501' });

  const account = randomUUID();
  const columns = sql`(kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference`;
  const spend = (nonce: string, id: RawBuilder<unknown>) => sql`
    insert into transfer ${columns}, id) overriding system value
    values ('spend', 'pending', ${account}, ${contra.prepaidRevenue}, 1, ${nonce}, ${id})`;
  const nonce = (name: string, id: RawBuilder<unknown>) => sql`
    insert into prepaid_nonce (account_id, nonce, hold_id) values (${account}, ${name}, ${id})`;
  const drawn = /the id of a (transfer|spend) is drawn for it/;
  await sql`insert into transfer ${columns}) values ('spend', 'pending', ${account}, ${contra.prepaidRevenue}, 1, 'a')`.execute(
    app,
  );
  for (const id of [sql`7000000`, sql`-1`, sql`currval('transfer_id_seq') - 1`, sql`currval('transfer_id_seq') + 1`]) {
    await assert.rejects(spend('b', id).execute(app), drawn);
    await assert.rejects(nonce('b', id).execute(app), drawn);
  }
  await sql`create temporary sequence transfer_id_seq start 7000000`.execute(app);
  await assert.rejects(spend('b', sql`nextval('transfer_id_seq')`).execute(app), drawn);
  await assert.rejects(nonce('b', sql`nextval('transfer_id_seq')`).execute(app), drawn);
  await sql`create temporary table prepaid_nonce (account_id uuid, nonce text, hold_id bigint)`.execute(app);
  await nonce('b', sql`7000000`).execute(app);
  await assert.rejects(spend('b', sql`7000000`).execute(app), drawn);
});

test('the database sets time and role of what an operator did', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  await migrate(ownerUrl, role);
  const app = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => app.destroy());
  await sql`
    insert into operator_action (operator, action, subject, reason, at, database_user)
    values ('alice', 'freeze', 'x', 'forged', '2001-01-01', 'alice')`.execute(app);
  const { rows } = await sql`
    select operator, database_user, at > now() - interval '1 hour' as is_now from operator_action`.execute(owner);
  assert.deepEqual(rows, [{ operator: 'alice', database_user: role, is_now: true }]);
});

test('no pause begins, changes or ends without its record', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  await migrate(ownerUrl, role);
  const app = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => app.destroy());
  const deed = { operator: 'alice', reason: 'moved' };
  const pause = (values: string) =>
    sql.raw(`insert into paused_flow (flow, operator, reason, since) values (${values})`);
  const record = (action: string, flow = 'card') => sql`
    insert into operator_action (operator, action, subject, reason) values ('alice', ${action}, ${flow}, 'moved')`;
  const together = (...statements: RawBuilder<unknown>[]) =>
    app.transaction().execute(async (trx) => {
      for (const statement of statements) await statement.execute(trx);
    });
  const refused = /its entry in operator_action/;
  const card = pause(`'card', 'alice', 'moved', now()`);
  for (const db of [app, owner]) await assert.rejects(card.execute(db), refused);
  for (const other of [
    pause(`'card', 'bob', 'moved', now()`),
    pause(`'card', 'alice', 'another', now()`),
    pause(`'card', 'alice', 'moved', '2001-01-01'`),
    pause(`'jobs', 'alice', 'moved', now()`),
  ]) {
    await assert.rejects(together(record('pause'), other), refused);
  }
  await assert.rejects(together(record('resume'), card), refused);
  await record('pause').execute(app);
  await assert.rejects(card.execute(app), refused, 'a record of an earlier transaction');

  assert.deepEqual(await pauseFlows(app, ['card', 'jobs'], deed), ['card', 'jobs']);
  const end = sql`delete from paused_flow`;
  for (const db of [app, owner]) await assert.rejects(end.execute(db), refused);
  await assert.rejects(together(record('resume'), end), refused, 'jobs have no record');
  await assert.rejects(sql`update paused_flow set reason = 'another'`.execute(owner), /a pause never changes/);
  await assert.rejects(sql`truncate paused_flow`.execute(owner), refused);
  assert.deepEqual(await resumeFlows(app, ['card', 'jobs'], deed), ['card', 'jobs']);
  assert.deepEqual(await audit(owner), []);
});

test('a database with one role only is migrated as ever, and the owner is no application role', async (t) => {
  const { owner, ownerUrl } = await withRole(t);
  assert.equal((await migrate(ownerUrl, 'no_such_role')).hasGranted, false);
  const { rows } = await sql<{ name: string }>`select current_user as name`.execute(owner);
  assert.equal((await migrate(ownerUrl, rows[0]?.name)).hasGranted, false);
});

test('a constraint that rows of an earlier release break fails no migration, and the audit shows them', async (t) => {
  const { owner, ownerUrl } = await withRole(t);
  const drop = sql`alter table x402_payment drop constraint x402_payment_lower_case`;
  await drop.execute(owner);
  await sql`
    insert into x402_payment (identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                              valid_before, head_block, lease_until)
    values ('old', '', 'eip155:8453', '0xa', '0xB', '0xc', '0xD', 1, 0, 0, now() + interval '1 hour')`.execute(owner);
  await sql`
    alter table x402_payment add constraint x402_payment_lower_case check (payer = lower(payer)) not valid`.execute(
    owner,
  );
  assert.deepEqual((await migrate(ownerUrl, '')).notValid, ['x402_payment_lower_case']);
  assert.deepEqual(
    (await audit(owner)).map(({ rule }) => rule),
    ['hash and addresses of a payment are written in their one form'],
  );
  await sql`delete from x402_payment`.execute(owner);
  assert.deepEqual((await migrate(ownerUrl, '')).notValid, []);
  assert.deepEqual(await audit(owner), []);
});
