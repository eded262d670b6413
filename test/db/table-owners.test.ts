import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type RawBuilder, sql } from 'kysely';
import { type Test, test } from 'tap';
import ts from 'typescript';
import { readRoleRights } from '../../src/db/application-role.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { readSqlFiles } from '../../src/db/sql-files.ts';
import { audit } from '../../src/ledger/audit.ts';
import { pauseFlows, resumeFlows } from '../../src/ledger/pauses.ts';
import { pruneNonces } from '../../src/ledger/wallet-holds.ts';
import { testDatabase } from '../support/database.ts';
import { later, untilJob } from '../support/jobs.ts';
import { fundedWallet, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { projectFile } from '../support/project.ts';

const ROOT = projectFile('').pathname;

/** The one folder whose code names the table. */
const OWNERS: Readonly<Record<string, string>> = {
  account: 'src/ledger/',
  audit_result: 'src/ledger/',
  instance: 'src/ledger/',
  prepaid_nonce: 'src/ledger/',
  transfer: 'src/ledger/',
  clawback: 'src/payments/top-up/',
  processor_list: 'src/payments/top-up/',
  top_up: 'src/payments/top-up/',
  x402_payee: 'src/payments/x402/',
  x402_payment: 'src/payments/x402/',
  job: 'src/jobs/',
  job_segment: 'src/jobs/',
  feedback: 'src/feedback/',
  rate_window: 'src/db/rate-window.ts',
  reconciler: 'src/reconcile/',
  operator_action: 'src/ledger/',
  paused_flow: 'src/ledger/',
};
/** What compares the tables with each other. It only reads. */
const AUDITS = ['db/audit/', 'src/operators/audit/', 'src/operators/report/'];

const KYSELY_CALL =
  /^(selectFrom|insertInto|updateTable|deleteFrom|mergeInto|from|using|\w*[jJ]oin(Lateral)?|\w*[aA]pply|table|ref|raw|id|query)$/;
const INSERT_TRANSFER = /insert\s+into\s+(\w+\.)?"?transfer\b|insertInto\(['"`](\w+\.)?transfer\b/gi;
const WRITES =
  /\b(?:insert\s+into|update|delete\s+from|truncate(?:\s+table)?|merge\s+into)\s+(?:only\s+)?(?:"?\w+"?\.)?"?(\w+)/g;

const NAMES = new RegExp(`\\b(${Object.keys(OWNERS).join('|')})\\b`);

interface Use {
  readonly table: string;
  readonly file: string;
  readonly isWrite: boolean;
}

/** Every place where the code of a file names a table to the database. */
function usesIn(file: string, source: string): Use[] {
  const uses: Use[] = [];
  const add = (text: string, isWrite: (table: string) => boolean) => {
    for (const [word] of text.replaceAll(/'[^']*'(?!::regclass)/g, "''").matchAll(/[a-z_][a-z0-9_]*/g)) {
      if (Object.hasOwn(OWNERS, word)) uses.push({ table: word, file, isWrite: isWrite(word) });
    }
  };
  if (!NAMES.test(source)) return uses;
  const visit = (node: ts.Node): void => {
    if (ts.isTaggedTemplateExpression(node) && node.tag.getText() === 'sql') {
      const text = textOf(node.template).toLowerCase();
      const written = [...text.matchAll(WRITES)].map(([, table]) => table);
      add(text, (table) => written.includes(table));
    } else if (ts.isCallExpression(node)) {
      const called = ts.isPropertyAccessExpression(node.expression) ? node.expression.name.text : '';
      if (KYSELY_CALL.test(called)) {
        for (const text of node.arguments.flatMap(textsIn))
          add(text, () => /^(insert|update|delete|merge)/.test(called));
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true));
  return uses;
}

const textsIn = (argument: ts.Expression): string[] => {
  if (ts.isArrayLiteralExpression(argument)) return argument.elements.flatMap(textsIn);
  if (ts.isConditionalExpression(argument)) return [argument.whenTrue, argument.whenFalse].flatMap(textsIn);
  if (ts.isParenthesizedExpression(argument) || ts.isAsExpression(argument)) return textsIn(argument.expression);
  if (ts.isStringLiteral(argument)) return [argument.text];
  return ts.isTemplateLiteral(argument) ? [textOf(argument)] : [];
};

/** A template's own words; what is put in between is looked at by itself. */
const textOf = (template: ts.TemplateLiteral): string =>
  ts.isNoSubstitutionTemplateLiteral(template)
    ? template.text
    : [template.head.text, ...template.templateSpans.map(({ literal }) => literal.text)].join(' ? ');

const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .map((name) => `src/${name.replaceAll('\\', '/')}`)
  .filter((name) => name.endsWith('.ts') && !name.startsWith('src/contract/'));
const sources = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));
for (const { name, text } of await readSqlFiles('audit')) {
  sources.set(`db/audit/${name}.sql`, `sql\`${text.replaceAll(/--.*/g, '')}\``);
}

const isAudit = (file: string) => AUDITS.some((folder) => file.startsWith(folder));

test('only one folder uses each table, apart from read-only audits', async (t) => {
  const uses = [...sources].flatMap(([file, source]) => usesIn(file, source));
  const strays = uses.filter(
    ({ table, file, isWrite }) => !(isAudit(file) ? !isWrite : file.startsWith(OWNERS[table] as string)),
  );
  t.strictSame(strays, []);
  for (const [table, folder] of Object.entries(OWNERS)) {
    t.ok(
      uses.some((use) => use.table === table && use.file.startsWith(folder)),
      `${folder} uses ${table}`,
    );
  }
});

test('every table of the schema has an owning folder', async (t) => {
  const types = readFileSync(join(ROOT, 'db/tables.ts'), 'utf8');
  const schema = /export interface DB \{([^}]*)\}/.exec(types)?.[1] ?? '';
  const tables = [...schema.matchAll(/^ {2}(\w+):/gm)].map(([, table]) => table);
  t.strictSame(tables.sort(), Object.keys(OWNERS).sort());
});

test('only src/ledger/ inserts transfers: entries in one file, holds in two', async (t) => {
  const spelled = [...sources].flatMap(([file, source]) =>
    Array(source.match(INSERT_TRANSFER)?.length ?? 0).fill(file),
  );
  t.strictSame(
    new Set(spelled),
    new Set(['src/ledger/card-holds.ts', 'src/ledger/transfer.ts', 'src/ledger/wallet-holds.ts']),
  );
});

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

test('the application role can neither delete nor rewrite booked transfers', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  t.equal((await migrate(ownerUrl, role)).hasGranted, true);
  // Twice, by replicas at the same time.
  await Promise.all([migrate(ownerUrl, role), migrate(ownerUrl, role)]);

  const gateway = await startPrepaidGateway(t, {}, { databaseUrl: url });
  const account = await gateway.fund(500);
  const card = await gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': account } });
  t.equal(card.status, 200);
  const { sign } = await fundedWallet(gateway, 1000n);
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200);
  const { jobId } = (await later(gateway, account)).json;
  gateway.app.worker?.start();
  t.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  for (const { name, outcome } of await gateway.app.reconcilers.turn()) {
    if (!['top_ups', 'checkout_sweep', 'clawback_sweep'].includes(name)) t.equal(outcome, 'done', name);
  }
  t.equal(await pruneNonces(gateway.db), 0);
  t.strictSame(await audit(gateway.db), []);

  for (const statement of [
    sql`delete from transfer`,
    sql`truncate transfer`,
    sql`update transfer set amount_micro_usd = 1`,
    sql`update transfer set debit_account_id = credit_account_id`,
    sql`delete from account`,
    sql`update account set kind = 'card'`,
    sql`delete from job`,
    sql`update job set hold_id = gen_random_uuid()`,
    sql`update prepaid_nonce set spent_at = now()`,
    sql`update instance set id = gen_random_uuid()`,
    sql`delete from schema_migration`,
    sql`alter table transfer disable trigger user`,
    sql`create or replace function refuse_change() returns trigger language plpgsql as 'begin return new; end'`,
  ]) {
    await t.rejects(statement.execute(gateway.db), { code: '42501' });
  }
  await t.rejects(sql`update prepaid_nonce set account_id = account_id`.execute(gateway.db), { code: '23000' });
  await t.rejects(sql`delete from top_up`.execute(gateway.db), { code: '23000' });
  await t.rejects(sql`delete from x402_payment`.execute(gateway.db), { code: '23000' });
  t.strictSame(await audit(owner), []);

  await sql`revoke insert on transfer from ${sql.ref(role)}`.execute(owner);
  const refused = await gateway.call(TTS, await sign(TTS, HELLO));
  t.strictSame([refused.status, refused.json.error.code], [503, 'CONFIG_ERROR'], 'the operator has to act');
});

test('the application role cannot choose positions in the ledger', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  await migrate(ownerUrl, role);
  const app = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => app.destroy());
  const { rows } = await sql<{ table: string; column: string }>`
    select attrelid::regclass::text as table, attname as column from pg_attribute
    where attidentity <> '' and attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)
    order by 1`.execute(owner);
  t.strictSame(
    rows.map(({ table }) => table),
    ['operator_action', 'transfer', 'x402_payment'],
  );
  for (const { table, column } of rows) {
    await t.rejects(
      sql`insert into ${sql.table(table)} (${sql.ref(column)}) overriding system value values (7)`.execute(app),
      { code: '42501' },
      table,
    );
  }
  await sql`grant insert (position) on x402_payment to ${sql.ref(role)}`.execute(owner);
  t.strictSame((await readRoleRights(app)).excess, ['choose ids in x402_payment']);
  await migrate(ownerUrl, role);
  const { missing, excess } = await readRoleRights(app);
  t.strictSame([missing, excess], [[], []]);
  await t.rejects(sql`select setval('transfer_position_seq', 7)`.execute(app), { code: '42501' });
});

test('the database sets the time and role of an operator action', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  await migrate(ownerUrl, role);
  const app = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => app.destroy());
  await sql`
    insert into operator_action (operator, action, subject, reason, at, database_user)
    values ('alice', 'freeze', 'x', 'forged', '2001-01-01', 'alice')`.execute(app);
  const { rows } = await sql`
    select operator, database_user, at > now() - interval '1 hour' as is_now from operator_action`.execute(owner);
  t.strictSame(rows, [{ operator: 'alice', database_user: role, is_now: true }]);
});

test('no pause begins, changes or ends without an operator action', async (t) => {
  const { owner, role, ownerUrl, url } = await withRole(t);
  await migrate(ownerUrl, role);
  const app = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => app.destroy());
  const operatorAction = { operator: 'alice', reason: 'moved' };
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

  t.strictSame(await pauseFlows(app, ['card', 'jobs'], operatorAction), ['card', 'jobs']);
  const end = sql`delete from paused_flow`;
  for (const db of [app, owner]) await assert.rejects(end.execute(db), refused);
  await assert.rejects(together(record('resume'), end), refused, 'jobs have no record');
  await t.rejects(sql`update paused_flow set reason = 'another'`.execute(owner), /a pause never changes/);
  await assert.rejects(sql`truncate paused_flow`.execute(owner), refused);
  t.strictSame(await resumeFlows(app, ['card', 'jobs'], operatorAction), ['card', 'jobs']);
  t.strictSame(await audit(owner), []);
});

test('a database with a single role migrates without granting rights', async (t) => {
  const { owner, ownerUrl } = await withRole(t);
  t.equal((await migrate(ownerUrl, 'no_such_role')).hasGranted, false);
  const { rows } = await sql<{ name: string }>`select current_user as name`.execute(owner);
  t.equal((await migrate(ownerUrl, rows[0]?.name)).hasGranted, false);
});

test('old rows that break a new constraint fail the audit, not the migration', async (t) => {
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
  t.strictSame((await migrate(ownerUrl, '')).notValid, ['x402_payment_lower_case']);
  t.strictSame(
    (await audit(owner)).map(({ rule }) => rule),
    ['hashes and addresses of payments are complete and in lower case'],
  );
  await sql`delete from x402_payment`.execute(owner);
  t.strictSame((await migrate(ownerUrl, '')).notValid, []);
  t.strictSame(await audit(owner), []);
});
