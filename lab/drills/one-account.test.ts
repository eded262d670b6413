/**
 * What docs/scaling.md says of several databases: a request's statements read and write one account, found by its id or
 * address, and the rows of that account only; and what guards the books without triggers. It prints each statement with
 * the accounts that its plan touches.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { sql } from 'kysely';
import pg from 'pg';
import { test } from 'tap';
import { grantApplicationRole } from '../../src/db/application-role.ts';
import { openDatabase } from '../../src/db/database.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { testCheckout } from '../../test/support/checkout.ts';
import { testDatabase } from '../../test/support/database.ts';
import { mineSteadily, payDeposit } from '../../test/support/deposit.ts';
import { startMailServer } from '../../test/support/mail-server.ts';
import { FLOWS } from '../../test/support/paid-flows.ts';
import { type ExecutedPlan, nodesOf, watchPlans, writesOf } from '../../test/support/plans.ts';
import { projectFile } from '../../test/support/project.ts';
import { startX402Gateway } from '../../test/support/x402.ts';

const { chain, skip } = await testChain();

/** Tables whose rows belong to an account, or to the payment that becomes one's. */
const MONEY = new Set(['account', 'transfer', 'prepaid_nonce', 'job', 'top_up', 'clawback', 'x402_payment']);
/** The gauges of all accounts together, and upkeep; each shard has its own. */
const UPKEEP = /graphile_worker|min\(created_at\)|count\(\*\)|from reconciler/s;

/** Rows of `account` that left its scans: those of contra accounts are never read. */
const accountsIn = ({ root }: ExecutedPlan): number =>
  [...nodesOf(root)]
    .filter((node) => node['Relation Name'] === 'account' && node['Node Type'].endsWith('Scan'))
    .reduce((most, node) => Math.max(most, node['Actual Rows'] * node['Actual Loops']), 0);

const tablesIn = ({ root }: ExecutedPlan): string[] => [
  ...new Set(
    [...nodesOf(root)].flatMap((node) =>
      MONEY.has(node['Relation Name'] ?? '') ? [node['Relation Name'] as string] : [],
    ),
  ),
];

/** The tables have a few rows only, of which the planner would read all; the drill query-plans has many. */
async function planAsForManyRows(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  const { rows } = await client.query('select quote_ident(current_database()) as name');
  for (const way of ['seqscan', 'hashjoin', 'mergejoin', 'bitmapscan', 'material']) {
    await client.query(`alter database ${rows[0].name} set enable_${way} = off`);
  }
  await client.end();
}

test('docs/scaling.md: no statement of a request crosses accounts', { skip }, async (t) => {
  const { url } = await testDatabase(t);
  const plans: ExecutedPlan[] = [];
  const checkout = await testCheckout(t);
  const mail = await startMailServer(t);
  await watchPlans(url, 'force_generic_plan', (plan) => plans.push(plan));
  await planAsForManyRows(url);
  const gateway = await startX402Gateway(
    t,
    chain,
    {
      ...checkout.env,
      ...{ SMTP_URL: mail.url, FEEDBACK_FROM: 'from@speech.example', FEEDBACK_TO: 'to@speech.example' },
    },
    { databaseUrl: url, worker: true },
  );
  mineSteadily(t, chain);
  // Others are there too, so that a statement could meet them.
  for (let other = 0; other < 3; other++) await gateway.fund(500);
  const [prepaid, direct, bystander] = await Promise.all([1, 2, 3].map(() => wallet(chain.client, 100_000_000n)));
  assert.ok(prepaid && direct && bystander);
  for (const owner of [prepaid, bystander]) assert.equal((await payDeposit(gateway, owner)).reply.status, 200);
  const card = await gateway.fund(500);

  for (const [name, { run }] of Object.entries(FLOWS)) {
    await t.test(name, async (t) => {
      plans.length = 0;
      await run(gateway, { card, prepaid, direct, checkout });
      const ours = plans.filter((plan) => tablesIn(plan).length > 0 && !UPKEEP.test(plan.text));
      const crossing = ours.filter((plan) => accountsIn(plan) > 1);
      t.strictSame(
        crossing.map(({ text }) => text),
        [],
      );
      for (const plan of new Map(ours.map((each) => [each.text, each])).values()) {
        const text = plan.text.replaceAll(/\s+/g, ' ').trim();
        console.error(
          `${accountsIn(plan)} accounts; ${[...tablesIn(plan)].join(', ')}; writes ${writesOf(plan).join(', ') || 'nothing'}: ${text}`,
        );
      }
    });
  }
});

/**
 * What does the work of each trigger on an engine without them: the application role has no right to the change
 * (`privilege`), or could lose it (`privilege to come`); a check or default of the column could; the service's statements
 * never make the change; or a rule of db/audit/ finds it.
 */
const WITHOUT_TRIGGERS: Readonly<Record<string, string>> = {
  instance_keeps_network: 'statement',
  account_terms: 'privilege',
  account_mode: 'statement',
  account_kept: 'privilege',
  account_kept_all: 'privilege',
  transfer_begins: 'check',
  transfer_lease: '801_future_times',
  transfer_terms: 'privilege',
  transfer_ended: 'statement',
  transfer_kept: 'privilege',
  transfer_kept_all: 'privilege',
  job_terms: 'privilege',
  job_due: '801_future_times',
  job_kept: 'privilege',
  top_up_terms: 'privilege to come',
  top_up_credited: 'statement',
  top_up_check: '801_future_times',
  top_up_kept: 'statement',
  top_up_kept_all: 'privilege',
  clawback_terms: 'privilege',
  clawback_check: '801_future_times',
  clawback_kept: 'privilege',
  clawback_kept_all: 'privilege',
  processor_list_read: '801_future_times',
  x402_payment_belongs: '305_denomination',
  x402_payment_belongs_still: 'privilege to come',
  x402_payment_terms: 'privilege to come',
  x402_payment_settled: 'statement',
  x402_payment_sent: 'statement',
  x402_payment_lease: '801_future_times',
  x402_payment_kept: 'statement',
  x402_payment_kept_all: 'privilege',
  prepaid_nonce_terms: 'privilege to come',
  prepaid_nonce_kept: 'statement',
  prepaid_nonce_kept_all: 'privilege',
  operator_action_begins: 'default',
  operator_action_terms: 'privilege',
  operator_action_kept: 'privilege',
  operator_action_kept_all: 'privilege',
  paused_flow_recorded: 'statement',
  paused_flow_terms: 'privilege to come',
  paused_flow_kept_all: 'privilege',
};

test('docs/scaling.md: each trigger has what does its work elsewhere', async (t) => {
  const { url } = await testDatabase(t);
  const owner = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => owner.destroy());
  const role = `one_account_${randomUUID().replaceAll('-', '')}`;
  await sql`create role ${sql.id(role)}`.execute(owner);
  t.teardown(() => sql`drop owned by ${sql.id(role)}; drop role ${sql.id(role)}`.execute(owner));
  assert.ok(await grantApplicationRole(owner, role));
  const { rows } = await sql<{ name: string; is_refused: boolean }>`
    select tgname as name, not case
      when tgtype & 8 > 0 then has_table_privilege(${role}, tgrelid, 'delete')
      when tgtype & 32 > 0 then has_table_privilege(${role}, tgrelid, 'truncate')
      when cardinality(tgattr::smallint[]) = 0 then has_any_column_privilege(${role}, tgrelid, 'update')
      else (select bool_or(has_column_privilege(${role}, tgrelid, attnum, 'update'))
            from unnest(tgattr::smallint[]) attnum)
    end as is_refused
    from pg_trigger join pg_class on pg_class.oid = tgrelid
    where not tgisinternal and relnamespace = 'public'::regnamespace order by tgname`.execute(owner);
  t.strictSame(
    rows.map(({ name }) => name),
    Object.keys(WITHOUT_TRIGGERS).sort(),
  );
  const rules = (await readdir(projectFile('db/audit/'))).map((file) => file.replace('.sql', ''));
  for (const { name, is_refused: isRefused } of rows) {
    const guard = WITHOUT_TRIGGERS[name] as string;
    if (guard.startsWith('privilege')) t.equal(isRefused, guard === 'privilege', name);
    else if (!['check', 'default', 'statement'].includes(guard)) t.ok(rules.includes(guard), name);
  }
});
