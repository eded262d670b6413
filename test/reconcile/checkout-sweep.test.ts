import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { type FaultyCheckout, startFaultyCheckout, storedSession } from '../support/faulty-checkout.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { runTurn, runWithoutTurn } from '../support/reconcile.ts';
import { until } from '../support/until.ts';

const HOUR = 3600;
const now = () => Math.floor(Date.now() / 1000);

const settings = (checkout: FaultyCheckout) => ({
  STRIPE_SECRET_KEY: checkout.secretKey,
  STRIPE_API_BASE: checkout.apiBase,
});

const instanceOf = async ({ db }: Gateway) =>
  (await db.selectFrom('instance').select('id').executeTakeFirstOrThrow()).id;

const stored = (created: number, metadata: Record<string, string>, state: 'open' | 'paid' = 'paid') =>
  storedSession(created, metadata, state === 'paid' ? {} : { status: 'open', payment_status: 'unpaid' });

/** A database of a known instance, and the metadata of a purchase of its own that it knows nothing of. */
async function instance(t: Test) {
  const { url: databaseUrl } = await testDatabase(t);
  const gateway = await startGateway(t, {}, { databaseUrl });
  const instanceId = await instanceOf(gateway);
  // Its schema may have been made long ago, see testDatabase.
  await gateway.db.updateTable('processor_list').set({ read_until: sql`now() - interval '25 hours'` }).execute();
  const orphan = () => ({ instance_id: instanceId, top_up_id: randomUUID(), account_id: randomUUID() });
  return { databaseUrl, orphan };
}

const lists = (checkout: FaultyCheckout) => checkout.calls.filter(({ path }) => path === '/v1/checkout/sessions');
const sweepState = ({ db }: Gateway) =>
  db.selectFrom('processor_list').where('name', '=', 'sessions').selectAll().executeTakeFirstOrThrow();

test('R16: a paid session missing from the database, as after a restore, is credited', async (t) => {
  const { databaseUrl, orphan } = await instance(t);
  const metadata = { ...orphan(), challenge_id: 'challenge-1' };
  const longAgo = orphan();
  const sessions = [
    stored(now() - 50 * HOUR, longAgo),
    stored(now() - 100, { ...orphan(), instance_id: randomUUID() }),
    stored(now() - 90, orphan(), 'open'),
    stored(now() - 80, metadata),
  ];
  const checkout = await startFaultyCheckout(t, { sessions });
  const gateway = await startGateway(t, settings(checkout), { databaseUrl });
  t.strictSame(await runTurn(gateway, 'checkout_sweep'), { name: 'checkout_sweep', outcome: 'done', count: 1 });
  t.equal(await gateway.balance(metadata.account_id), 7_000_000n);
  const row = await gateway.db.selectFrom('top_up').selectAll().executeTakeFirstOrThrow();
  t.strictSame([row.id, row.state, row.challenge_id], [metadata.top_up_id, 'credited', 'challenge-1']);
  t.equal((await runTurn(gateway, 'checkout_sweep')).count, 0);

  // The watermark is as old as the backup.
  await gateway.db.updateTable('processor_list').set({ read_until: sql`now() - interval '3 days'` }).execute();
  t.equal((await runTurn(gateway, 'checkout_sweep')).count, 1);
  t.equal(await gateway.balance(longAgo.account_id), 7_000_000n);
  t.strictSame(await audit(gateway.db), []);
});

test('an orphaned session is credited after a restart, even if the sweep is rare', async (t) => {
  const { databaseUrl, orphan } = await instance(t);
  const metadata = orphan();
  const before = await startGateway(t, settings(await startFaultyCheckout(t)), { databaseUrl });
  t.equal((await runTurn(before, 'checkout_sweep')).outcome, 'done');
  const checkout = await startFaultyCheckout(t, { sessions: [stored(now() - 100, metadata)] });
  const env = { ...settings(checkout), RECONCILE_INTERVAL_MS: '100' };
  const gateway = await startGateway(t, env, { databaseUrl });
  await until(
    async () =>
      (await gateway.db.selectFrom('account').select('id').where('id', '=', metadata.account_id).execute()).length > 0,
  );
  t.equal(await gateway.balance(metadata.account_id), 7_000_000n);
});

test('a sweep reads every page back to the watermark and then advances it', async (t) => {
  const { databaseUrl, orphan } = await instance(t);
  const oldest = orphan();
  const foreign = { instance_id: randomUUID(), top_up_id: randomUUID(), account_id: randomUUID() };
  const sessions = [
    stored(now() - 5 * HOUR, oldest),
    ...Array.from({ length: 249 }, () => stored(now() - HOUR, foreign)),
  ];
  const checkout = await startFaultyCheckout(t, { sessions });
  const gateway = await startGateway(t, settings(checkout), { databaseUrl });
  await gateway.db.updateTable('processor_list').set({ read_until: sql`now() - interval '2 days'` }).execute();
  t.equal((await runTurn(gateway, 'checkout_sweep')).count, 1);
  t.equal(lists(checkout).length, 3);
  for (const { query } of lists(checkout)) {
    t.ok(Math.abs(Number(query.get('created[gte]')) - (now() - 48 * HOUR)) < 60);
    t.equal(query.get('status'), 'complete');
  }
  const { read_until, pass_started_at, pass_cursor } = await sweepState(gateway);
  t.ok(Math.abs(read_until.getTime() / 1000 - (now() - 25 * HOUR)) < 60);
  t.strictSame([pass_started_at, pass_cursor], [null, null]);
});

test('an interrupted sweep resumes, or restarts if its cursor is unknown', async (t) => {
  const { databaseUrl, orphan } = await instance(t);
  const [older, newer] = [orphan(), orphan()];
  const place = stored(now() - 2 * HOUR, {});
  const sessions = [stored(now() - 3 * HOUR, older), place, stored(now() - HOUR, newer)];
  const checkout = await startFaultyCheckout(t, { sessions });
  const gateway = await startGateway(t, settings(checkout), { databaseUrl });
  const interrupt = (cursor: string) =>
    gateway.db
      .updateTable('processor_list')
      .set({ pass_started_at: sql`now() - interval '1 hour'`, pass_cursor: cursor })
      .execute();
  await interrupt(place.id);
  t.equal((await runTurn(gateway, 'checkout_sweep')).count, 1);
  t.equal(await gateway.balance(older.account_id), 7_000_000n);
  const { read_until } = await sweepState(gateway);
  t.ok(Math.abs(read_until.getTime() / 1000 - (now() - 25 * HOUR)) < 60, 'never backwards');

  await interrupt('cs_test_unknown');
  t.equal((await runTurn(gateway, 'checkout_sweep')).outcome, 'failed');
  t.equal((await runTurn(gateway, 'checkout_sweep')).count, 1);
  t.equal(await gateway.balance(newer.account_id), 7_000_000n);
  t.strictSame(await audit(gateway.db), []);
});

test('two sweeps at once credit each session once and miss none', async (t) => {
  const { databaseUrl, orphan } = await instance(t);
  const sessions = Array.from({ length: 250 }, () => stored(now() - HOUR, orphan()));
  const checkout = await startFaultyCheckout(t, { sessions });
  const gateway = await startGateway(t, settings(checkout), { databaseUrl });
  const replica = await startGateway(t, settings(checkout), { databaseUrl });
  const counts = await Promise.all([gateway, replica].map((each) => runWithoutTurn(each, 'checkout_sweep')));
  t.ok(lists(checkout).length > 3, 'both have read a page');
  t.equal(
    counts.reduce((sum, count) => sum + count),
    sessions.length,
  );
  const balances = await gateway.db
    .selectFrom('account')
    .select('balance_micro_usd')
    .where('kind', '=', 'card')
    .execute();
  t.strictSame(
    balances.map((account) => account.balance_micro_usd),
    sessions.map(() => 7_000_000n),
  );
  const { read_until, pass_started_at, pass_cursor } = await sweepState(gateway);
  t.ok(Math.abs(read_until.getTime() / 1000 - (now() - 25 * HOUR)) < 60);
  t.strictSame([pass_started_at, pass_cursor], [null, null]);
  t.equal(await runWithoutTurn(replica, 'checkout_sweep'), 0);
  t.strictSame(await audit(gateway.db), []);
});
