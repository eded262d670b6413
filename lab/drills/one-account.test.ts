/**
 * What docs/scaling.md says of partitioning by account: a request's statements read and write one account, found by its
 * id or address, and the rows of that account only. It prints each statement with the accounts that its plan touches.
 */
import assert from 'node:assert/strict';
import pg from 'pg';
import { test } from 'tap';
import { testChain, wallet } from '../../test/support/chain.ts';
import { testCheckout } from '../../test/support/checkout.ts';
import { testDatabase } from '../../test/support/database.ts';
import { mineSteadily, payDeposit } from '../../test/support/deposit.ts';
import { startMailServer } from '../../test/support/mail-server.ts';
import { FLOWS } from '../../test/support/paid-flows.ts';
import { type ExecutedPlan, nodesOf, watchPlans, writesOf } from '../../test/support/plans.ts';
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
