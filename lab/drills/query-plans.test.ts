import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { filledCards, fillLedger, sizesFor } from '../../lab/bench/fill-ledger.ts';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { pruneNonces } from '../../src/ledger/wallet-holds.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { RollingWindow } from '../../src/payments/limits/rolling-window.ts';
import { openPayments } from '../../src/payments/x402/resolver.ts';
import { createReconcilers } from '../../src/reconcile/reconcilers.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import { testChain, wallet } from '../../test/support/chain.ts';
import { testCheckout } from '../../test/support/checkout.ts';
import { testDatabase } from '../../test/support/database.ts';
import { mineSteadily } from '../../test/support/deposit.ts';
import { leaveWindows } from '../../test/support/leave-windows.ts';
import { startMailServer } from '../../test/support/mail-server.ts';
import { FLOWS } from '../../test/support/paid-flows.ts';
import { faultsOf } from '../../test/support/plan-rules.ts';
import { type ExecutedPlan, watchPlans, writesOf } from '../../test/support/plans.ts';
import { until } from '../../test/support/until.ts';
import { startX402Gateway } from '../../test/support/x402.ts';
import { LEFTOVERS } from './leftovers.ts';

/** Enough that an index is the faster way wherever there is one. */
const SIZES = {
  ...sizesFor(50_000),
  queuedJobs: 1000,
  openPurchases: 1000,
  feedback: 20_000,
  nonceHours: 72,
  jobs: 50_000,
};
/** Reconcilers that ask the database nothing while the store is empty. */
const OF_STORE_ALONE = ['prepaid_audio', 'payment_audio'];
/** A statement gets a plan for all its values in its sixth execution at the earliest. */
const TIMES = 7;

const { chain, skip } = await testChain();
const prepaid = privateKeyToAccount(generatePrivateKey());
/** The large ledger, of which each test has a copy. */
const filled = await testDatabase(t);

test('the large test ledger passes the audit', { skip }, async (t) => {
  const owner = openDatabase(filled.url, { maxConnections: 2, statementTimeoutMs: 0 });
  t.teardown(() => owner.destroy());
  await fillLedger(owner, SIZES, { wallets: [prepaid.address.toLowerCase()] });
  t.strictSame(await audit(owner), []);
});

for (const mode of ['auto', 'force_generic_plan'] as const) {
  test(`each statement finds its rows by an index in a large ledger (${mode})`, {
    skip,
  }, async (t) => {
    const { url } = await testDatabase(t, filled);
    const owner = openDatabase(url, { maxConnections: 2, statementTimeoutMs: 0 });
    t.teardown(() => owner.destroy());
    const cards = await filledCards(owner, SIZES, 200);

    const plans: ExecutedPlan[] = [];
    await watchPlans(url, mode, (plan) => plans.push(plan));
    const checkout = await testCheckout(t);
    const mail = await startMailServer(t);
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
    const { db, config } = gateway;
    const direct = await wallet(chain.client, 100_000_000n);
    /** Does something, and holds each statement of it against the rules. */
    const watched = (name: string, writes: readonly string[], work: () => Promise<unknown>) =>
      t.test(name, async (t) => {
        plans.length = 0;
        await work();
        const missing = () => {
          const seen = new Set(plans.flatMap(writesOf));
          return writes.filter((write) => !seen.has(write));
        };
        // A charge is captured after its answer; if it is not, the assertion names the missing write.
        await until(() => missing().length === 0).catch(() => {});
        t.strictSame(missing(), [], 'it has written');
        t.ok(plans.length > 0);
        console.error(`${plans.length} statements`);
        // One for each statement and table, however often it was executed.
        const faults = new Map(
          plans.flatMap((plan) => faultsOf(plan).map((fault) => [`${plan.text} ${fault.table}`, fault])),
        );
        t.strictSame(
          [...faults].map(([where, { text }]) => `${text}: ${where}`),
          [],
        );
      });

    for (const [name, { writes, run }] of Object.entries(FLOWS)) {
      await watched(name, writes, async () => {
        for (let time = 0; time < TIMES; time++) {
          await run(gateway, { card: cards[time] as string, prepaid, direct, checkout });
        }
      });
    }

    const store = openAudioStore(config.jobs.audioStore);
    assert.ok(config.x402?.rpcUrls);
    const payments = openPayments(db, config.x402.asset, config.x402.rpcUrls);
    t.teardown(() => Promise.all([store.close(), payments.chain.close()]));
    const reconcilers = createReconcilers(config, db, store, payments);
    const withRows = reconcilers.filter(({ name }) => !OF_STORE_ALONE.includes(name));
    t.strictSame(withRows.map(({ name }) => name).sort(), Object.keys(LEFTOVERS).sort());
    for (const { name, run } of withRows) {
      const { leave, writes } = LEFTOVERS[name] as (typeof LEFTOVERS)[string];
      await leave(owner, cards);
      await sql`analyze`.execute(owner);
      const turn = () =>
        run({
          signal: new AbortController().signal,
          steadyMs: Number.POSITIVE_INFINITY,
          done: () => {},
          report: () => {},
        });
      await watched(`the reconciler ${name}`, writes, turn);
      await watched(`the reconciler ${name} with nothing to do`, [], turn);
    }

    await leaveWindows(owner, 3000);
    const limits = new RollingWindow(db, { max: 1, windowSeconds: 60 }, new Metrics());
    for (const [name, prune, table] of [
      ['nonces', () => pruneNonces(db), 'prepaid_nonce'],
      ['windows', () => limits.prune(), 'rate_window'],
    ] as const) {
      await watched(`pruning of ${name}`, [`Delete ${table}`], prune);
      while ((await prune()) > 0) {}
      await watched(`pruning of ${name} with nothing to do`, [], prune);
    }
    t.strictSame(await audit(owner), []);
  });
}
