import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { filledCards, fillLedger, sizesFor } from '../../lab/bench/fill-ledger.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { claimJob } from '../../src/jobs/claim-job.ts';
import { findCardAccount } from '../../src/ledger/accounts.ts';
import { audit } from '../../src/ledger/audit.ts';
import { applyClawback, lockAccount } from '../../src/ledger/debts.ts';
import { voidHold } from '../../src/ledger/hold.ts';
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
import { holdOnCard } from '../../test/support/holds.ts';
import { leaveWindows } from '../../test/support/leave-windows.ts';
import { startMailServer } from '../../test/support/mail-server.ts';
import { FLOWS } from '../../test/support/paid-flows.ts';
import { faultsOf } from '../../test/support/plan-rules.ts';
import { type ExecutedPlan, nodesOf, watchPlans, writesOf } from '../../test/support/plans.ts';
import { until } from '../../test/support/until.ts';
import { startX402Gateway } from '../../test/support/x402.ts';

/** How many of each are left. */
const LEFT = 120;
/** Of these so many that sorting them for the first one costs more than an index. */
const MANY = 2000;
const PRICE = 198n;
const usage = () => ({ model: 'provider-a/tts-1', characters: 11, ratePicoUsd: 18_000_000n, traceId: randomUUID() });

/** What dead processes and absent buyers have left in a filled ledger for one reconciler, and what that has to write. */
interface Leftover {
  /** Of tables, as `Update transfer`. */
  readonly writes: readonly string[];
  leave(db: Database, cards: readonly string[]): Promise<void>;
}

const run =
  (...statements: RawBuilder<unknown>[]) =>
  async (db: Database) => {
    for (const statement of statements) await statement.execute(db);
  };

/** Has a cent of the account's purchase refunded while all that it has is held, so that the refund becomes a debt. */
async function leaveDebt(db: Database, card: string): Promise<void> {
  const balance = (await findCardAccount(db, card))?.balanceMicroUsd ?? 0n;
  const all = { ...usage(), characters: Number(balance), ratePicoUsd: 1_000_000n };
  const placed = await holdOnCard(db, card, balance, 60, { usage: all });
  if (placed.outcome !== 'placed') throw new Error(`the account holds nothing: ${placed.outcome}`);
  await db.transaction().execute(async (trx) => {
    await lockAccount(trx, card);
    await sql`
      insert into clawback (id, kind, top_up_id, account_id, amount_cents, status, state, turns, created_at)
      select 're_debt' || id, 'refund', id, account_id, 1, 'succeeded', 'taken', 1, now()
      from top_up where account_id = ${card} and state = 'credited' limit 1`.execute(trx);
    const { rows } = await sql<{
      id: string;
    }>`select id from clawback where account_id = ${card} and state = 'taken'`.execute(trx);
    await applyClawback(trx, 'refund', { accountId: card, amountMicroUsd: 10_000n, reference: rows[0]?.id ?? '' });
  });
  await voidHold(db, placed.hold);
}

/** By the reconciler's name. */
const LEFTOVERS: Readonly<Record<string, Leftover>> = {
  expired_holds: {
    writes: ['Update transfer', 'Update account'],
    leave: async (db, cards) => {
      for (const card of cards.slice(0, LEFT)) await holdOnCard(db, card, PRICE, -10, { usage: usage() });
    },
  },
  debts: {
    writes: ['Insert transfer', 'Update account'],
    leave: async (db, cards) => {
      for (const card of cards.slice(0, LEFT)) await leaveDebt(db, card);
    },
  },
  lost_jobs: {
    writes: ['Update job'],
    leave: async (db) => {
      const { rows } = await sql<{ id: string }>`
        update job set run_at = now() - interval '1 hour', turn = 1
        where id in (select id from job where state = 'queued' limit ${2 * LEFT}) returning id`.execute(db);
      for (const { id } of rows.slice(LEFT)) await claimJob(db, id);
    },
  },
  expired_audio: {
    writes: ['Update job'],
    leave: run(
      sql`
      update job set audio_deleted = false
      where id in (select id from job where audio_deleted and audio_expires_at < now() limit ${LEFT})`,
      sql`
      insert into job_segment (job_id, number, characters)
      select id, number, 100 from job, generate_series(0, 4) number where state = 'completed' limit ${MANY}`,
    ),
  },
  top_ups: {
    writes: ['Update top_up'],
    leave: run(
      sql`
      update top_up set next_check_at = now() - interval '1 second', created_at = now() - interval '2 days'
      where id in (select id from top_up where state = 'open' limit ${LEFT})`,
      sql`
      insert into top_up (state, account_id, amount_cents, created_at)
      select 'opening', gen_random_uuid(), 500, now() - interval '2 days' from generate_series(1, ${LEFT})`,
    ),
  },
  checkout_sweep: { writes: ['Update processor_list'], leave: run() },
  clawback_sweep: {
    writes: ['Update processor_list'],
    leave: run(sql`
      insert into clawback (id, kind, top_up_id, account_id, amount_cents, status, created_at)
      select 're_' || id, 'refund', id, account_id, 1, 'requires_action', now() - interval '1 day'
      from top_up where state = 'credited' limit ${MANY}`),
  },
  clawbacks: {
    writes: ['Update clawback'],
    leave: run(sql`
      update clawback set next_check_at = now() - interval '1 minute'
      where id in (select id from clawback where status = 'requires_action' limit ${LEFT})`),
  },
  unpaid_purchases: {
    writes: ['Delete top_up'],
    leave: run(sql`
      insert into top_up (state, account_id, amount_cents, created_at)
      select 'expired', gen_random_uuid(), 500, now() - interval '22 days' from generate_series(1, ${LEFT})`),
  },
  old_feedback: {
    writes: ['Delete feedback'],
    leave: run(sql`
      update feedback set received_at = now() - interval '400 days'
      where id in (select id from feedback where mailed_at is not null order by received_at desc limit ${LEFT})`),
  },
  lost_mail: {
    writes: [],
    leave: run(sql`
      update feedback set mailed_at = null
      where id in (select id from feedback where mailed_at is not null order by received_at desc limit ${LEFT})`),
  },
  abandoned_payments: { writes: ['Update x402_payment', 'Delete x402_payment'], leave: run(payments('reserved')) },
  doubtful_payments: { writes: ['Update x402_payment'], leave: run(payments('unknown', MANY)) },
  failed_payments: {
    writes: ['Update x402_payment'],
    leave: run(sql`
      update x402_payment set next_look_at = now() - interval '1 hour', head_block = 0
      where id in (select id from x402_payment where state = 'failed' limit ${LEFT})`),
  },
};

/** Payments whose process is gone, of payers who have others. */
function payments(state: 'reserved' | 'unknown', count = LEFT): RawBuilder<unknown> {
  return sql`
    insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                              valid_before, head_block, lease_until, settling_at)
    select ${state}, gen_random_uuid()::text, '', network, asset, payer, '0x' || encode(sha256(uuid_send(gen_random_uuid())), 'hex'), pay_to, 198, 1, 0,
           case ${state} when 'reserved' then now() - interval '1 minute' end, case ${state} when 'unknown' then now() end
    from x402_payment where state = 'settled' limit ${count}`;
}

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

/** The gauges of all accounts together, and upkeep. */
const UPKEEP = /graphile_worker|min\(created_at\)|count\(\*\)|from reconciler/s;

/** Rows of `account` that left a statement's scans: those of contra accounts are never read. */
const accountsIn = ({ root }: ExecutedPlan): number =>
  [...nodesOf(root)]
    .filter((node) => node['Relation Name'] === 'account' && node['Node Type'].endsWith('Scan'))
    .reduce((most, node) => Math.max(most, node['Actual Rows'] * node['Actual Loops']), 0);

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
      // As docs/scaling.md says.
      const crossing = plans.filter((plan) => !UPKEEP.test(plan.text) && accountsIn(plan) > 1);
      t.strictSame([...new Set(crossing.map(({ text }) => text))], [], `${name}: no statement crosses accounts`);
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
