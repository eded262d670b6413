import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { pino } from 'pino';
import type Stripe from 'stripe';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import type { TurnResult } from '../../src/reconcile/reconciler.ts';
import { failStatements } from '../support/failing-statements.ts';
import { type Fault, type FaultyCheckout, faults, startFaultyCheckout } from '../support/faulty-checkout.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { runTurn, testRunner } from '../support/reconcile.ts';
import { lockRows } from '../support/row-lock.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';

const HOUR = 3600;

async function setUp(t: Test, env: Record<string, string> = {}) {
  const checkout = await startFaultyCheckout(t);
  const gateway = await startGateway(t, settings(checkout, env));
  return { checkout, gateway };
}

const settings = (checkout: FaultyCheckout, env: Record<string, string> = {}) => ({
  STRIPE_SECRET_KEY: checkout.secretKey,
  STRIPE_API_BASE: checkout.apiBase,
  ...env,
});

/** Opens a purchase as a buyer does; tells its session. */
async function open(gateway: Gateway, fields: Record<string, string> = {}): Promise<string> {
  const reply = await gateway.call('/top-up', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ amount: '700', ...fields }).toString(),
  });
  assert.equal(reply.status, 303);
  return (reply.headers.get('location') ?? '').split('/').at(-1) ?? '';
}

const purchase = (gateway: Gateway, session: string) =>
  gateway.db.selectFrom('top_up').selectAll().where('session_id', '=', session).executeTakeFirstOrThrow();

const count = (results: readonly TurnResult[], name: string) =>
  results.find((result) => result.name === name)?.count ?? 0;
const credited = (results: readonly TurnResult[]) => count(results, 'top_ups') + count(results, 'checkout_sweep');
const retrieves = (checkout: FaultyCheckout, session = '') =>
  checkout.calls.filter(({ method, path }) => method === 'GET' && path.startsWith(`/v1/checkout/sessions/${session}`));

/** The purchase as if it had been opened that long ago and were due now. */
const age = (gateway: Gateway, session: string, seconds: number) =>
  sql`update top_up set created_at = now() - make_interval(secs => ${seconds}), next_check_at = now()
      where session_id = ${session}`.execute(gateway.db);

test('R16: a session that is paid by a buyer who never returns is credited in the next turn; a later return says already credited', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  assert.equal((await runTurn(gateway, 'top_ups')).count, 0);
  await checkout.pay(session);
  assert.equal((await runTurn(gateway, 'top_ups')).count, 1);
  const { account_id, state } = await purchase(gateway, session);
  assert.equal(state, 'credited');
  assert.equal(await gateway.balance(account_id), 7_000_000n);

  const page = await gateway.call(`/top-up/complete?session_id=${session}`);
  assert.equal(page.status, 200);
  assert.match(page.text, /already/i);
  assert.equal(await gateway.balance(account_id), 7_000_000n);
  const before = retrieves(checkout, session).length;
  assert.equal((await runTurn(gateway, 'top_ups')).count, 0);
  assert.equal(retrieves(checkout, session).length, before, 'what is credited is not asked for again');
  assert.deepEqual(await audit(gateway.db), []);
});

test('R16: the account that a purchase was opened for is the one that is credited, by the interval', async (t) => {
  const { checkout, gateway } = await setUp(t, { RECONCILE_INTERVAL_MS: '100' });
  const account = await gateway.fund(500);
  const session = await open(gateway, { accountId: account });
  await checkout.pay(session);
  await until(async () => (await gateway.balance(account)) === 12_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R16: the buyer, a second tab and two reconcilers at the same moment credit once', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const replica = await startGateway(t, settings(checkout), { databaseUrl: gateway.databaseUrl });
  for (let round = 0; round < 25; round++) {
    const session = await open(gateway);
    await checkout.pay(session);
    const back = () => gateway.call(`/top-up/complete?session_id=${session}`);
    const [one, two, first, second] = await Promise.all([
      back(),
      back(),
      gateway.app.reconcilers.turn(),
      replica.app.reconcilers.turn(),
    ]);
    const fresh = [one, two].filter((page) => page.status === 200 && !/already/i.test(page.text)).length;
    assert.deepEqual([one.status, two.status], [200, 200]);
    assert.equal(fresh + credited(first) + credited(second), 1);
    assert.equal(await gateway.balance((await purchase(gateway, session)).account_id), 7_000_000n);
  }
  assert.deepEqual(await audit(gateway.db), []);
});

test('an unpaid session stays open, an expired one ends, and one that the processor lost ends with its time', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const [unpaid, expired, lost] = [await open(gateway), await open(gateway), `cs_test_${randomUUID()}`];
  await checkout.stripe.checkout.sessions.expire(expired);
  await gateway.db
    .insertInto('top_up')
    .values({ state: 'open', account_id: randomUUID(), amount_cents: 700, session_id: lost })
    .execute();
  assert.equal(credited(await gateway.app.reconcilers.turn()), 0);
  assert.equal((await purchase(gateway, unpaid)).state, 'open');
  assert.equal((await purchase(gateway, expired)).state, 'expired');
  assert.equal((await purchase(gateway, lost)).state, 'open');
  await age(gateway, lost, 24 * HOUR + 61);
  await age(gateway, unpaid, 24 * HOUR + 61);
  await gateway.app.reconcilers.turn();
  assert.equal((await purchase(gateway, lost)).state, 'expired');
  assert.equal((await purchase(gateway, unpaid)).state, 'open', 'the processor says when a session is over');
  await age(gateway, unpaid, 15 * 24 * HOUR);
  await gateway.app.reconcilers.turn();
  assert.equal((await purchase(gateway, unpaid)).state, 'expired');
});

test('a purchase that never got a session ends once nobody can have paid it', async (t) => {
  const { gateway } = await setUp(t);
  const rows = await gateway.db
    .insertInto('top_up')
    .values([
      { account_id: randomUUID(), amount_cents: 700 },
      { account_id: randomUUID(), amount_cents: 700, created_at: sql`now() - interval '27 hours'` },
    ])
    .returning('id')
    .execute();
  await gateway.app.reconcilers.turn();
  const states = await Promise.all(
    rows.map(({ id }) =>
      gateway.db.selectFrom('top_up').select('state').where('id', '=', id).executeTakeFirstOrThrow(),
    ),
  );
  assert.deepEqual(states, [{ state: 'opening' }, { state: 'expired' }]);
});

test('an open purchase is asked for in every turn of its first hour, then ever more rarely, and once when its time is over', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  const next = async (seconds: number) => {
    await age(gateway, session, seconds);
    await gateway.app.reconcilers.turn();
    const { created_at, next_check_at } = await purchase(gateway, session);
    return (next_check_at.getTime() - created_at.getTime()) / 1000;
  };
  const about = (actual: number, expected: number) =>
    assert.ok(actual >= expected - 1 && actual < expected + 60, `${actual} s after it was opened, not ${expected}`);
  about(await next(0), 0);
  about(await next(0.9 * HOUR), 0.9 * HOUR);
  about(await next(2 * HOUR), 2.5 * HOUR);
  about(await next(12 * HOUR), 15 * HOUR);
  about(await next(23 * HOUR), 24 * HOUR + 60);
  const before = retrieves(checkout).length;
  await gateway.app.reconcilers.turn();
  assert.equal(retrieves(checkout).length, before, 'not before its time');
});

test('R16: among a hundred abandoned checkouts, the one that was paid is credited in the next turn, with few calls', async (t) => {
  const { checkout, gateway } = await setUp(t);
  await gateway.db
    .insertInto('top_up')
    .values(
      Array.from({ length: 100 }, () => ({
        state: 'open',
        account_id: randomUUID(),
        amount_cents: 700,
        session_id: `cs_test_${randomUUID()}`,
      })),
    )
    .execute();
  const session = await open(gateway);
  await checkout.pay(session);
  checkout.calls.length = 0;
  assert.equal((await runTurn(gateway, 'top_ups')).count, 1);
  assert.equal((await purchase(gateway, session)).state, 'credited');
  assert.equal(checkout.calls.length, 25 + 1);
  for (let turn = 0; turn < 3; turn++) await runTurn(gateway, 'top_ups');
  const asked = new Set(retrieves(checkout, 'cs_').map(({ path }) => path));
  assert.equal(asked.size, 100, 'each has its turn');
  assert.deepEqual(await audit(gateway.db), []);
});

test('two replicas together ask as often as one', async (t) => {
  const intervalMs = 150;
  const { checkout, gateway } = await setUp(t, { RECONCILE_INTERVAL_MS: String(intervalMs) });
  await startGateway(t, settings(checkout, { RECONCILE_INTERVAL_MS: String(intervalMs) }), {
    databaseUrl: gateway.databaseUrl,
  });
  const session = await open(gateway);
  await until(() => retrieves(checkout, session).length > 0);
  const begin = performance.now();
  const before = retrieves(checkout, session).length;
  await until(() => retrieves(checkout, session).length >= before + 10);
  // Ten more than the first take nine gaps at least, each shorter than the interval by a tenth at most.
  assert.ok(performance.now() - begin >= 9 * 0.9 * intervalMs - intervalMs);
});

test('R16, R54: what is foreign, unpaid, in another currency or of the other mode is never credited', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const { id: instanceId } = await gateway.db.selectFrom('instance').select('id').executeTakeFirstOrThrow();
  const metadata = { instance_id: instanceId, top_up_id: randomUUID(), account_id: randomUUID() };
  const create = (changes: Partial<Stripe.Checkout.SessionCreateParams> = {}, currency = 'usd') =>
    checkout.stripe.checkout.sessions.create({
      mode: 'payment',
      line_items: [{ quantity: 1, price_data: { currency, unit_amount: 700, product_data: { name: 'n' } } }],
      success_url: 'http://speechgate.test/back',
      metadata,
      ...changes,
    });
  const wrong = {
    'another instance': await create({ metadata: { ...metadata, instance_id: randomUUID() } }),
    'no metadata': await create({ metadata: {} }),
    'an account id that is none': await create({ metadata: { ...metadata, account_id: 'x' } }),
    'another currency': await create({}, 'eur'),
  };
  for (const { id } of Object.values(wrong)) await checkout.pay(id);
  const unpaid = await create();
  for (const id of [...Object.values(wrong), unpaid].map((session) => session.id)) {
    await gateway.db
      .insertInto('top_up')
      .values({ state: 'open', account_id: randomUUID(), amount_cents: 700, session_id: id })
      .execute();
  }
  for (let turn = 0; turn < 2; turn++) {
    const results = await gateway.app.reconcilers.turn();
    for (const { name, outcome, count } of results) assert.deepEqual([outcome, count], ['done', 0], name);
  }

  // A service with a live key, at a processor whose sessions are those of the test mode.
  const live = await startFaultyCheckout(t, { secretKey: 'sk_live_checkout' });
  const liveGateway = await startGateway(t, settings(live));
  const session = await open(liveGateway);
  await live.pay(session);
  assert.equal(credited(await liveGateway.app.reconcilers.turn()), 0);
  assert.equal((await purchase(liveGateway, session)).state, 'open');

  for (const { db } of [gateway, liveGateway]) {
    assert.deepEqual(await db.selectFrom('transfer').selectAll().execute(), []);
    assert.deepEqual(await db.selectFrom('account').select('id').where('kind', '=', 'card').execute(), []);
    assert.deepEqual(await audit(db), []);
  }
});

test('a processor that is down or talks nonsense disturbs nothing, is called little, and tells the log nothing', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const sessions = await Promise.all(Array.from({ length: 6 }, () => open(gateway)));
  for (const session of sessions) await checkout.pay(session);
  let logged = '';
  const write = (line: string) => {
    logged += line;
  };
  const runner = testRunner(gateway, { log: pino({ level: 'trace' }, { write }) });
  for (const [name, fault] of Object.entries(faults)) {
    checkout.fault = fault;
    checkout.calls.length = 0;
    const results = await runner.turn();
    for (const result of results) {
      const outcome = ['top_ups', 'checkout_sweep'].includes(result.name) ? 'failed' : 'done';
      assert.deepEqual([result.outcome, result.count], [outcome, 0], `${name}: ${result.name}`);
    }
    // Three sessions and a list; the SDK repeats a call once whose connection was closed.
    assert.ok(checkout.calls.length <= 2 * (3 + 1), `${name}: ${checkout.calls.length} calls`);
  }
  assert.equal((await gateway.call('/tts/models')).status, 200);
  assert.equal((await gateway.call('/top-up/complete?session_id=cs_test_1')).status, 502);
  for (const secret of [checkout.secretKey, 'secret-of-the-processor', 'cs_test_']) {
    assert.ok(!logged.includes(secret), secret);
  }
  assert.match(logged, /the call to the card processor failed/);
  checkout.fault = () => false;
  assert.equal(credited(await runner.turn()), 6);
  assert.match(logged, /a reconciler works again/);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a session that the processor always fails at keeps no other waiting', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const [bad, ...good] = [await open(gateway), await open(gateway), await open(gateway)];
  for (const session of good) await checkout.pay(session);
  const fault = faults['500 without a body'] as Fault;
  checkout.fault = (method, path, response) => path.endsWith(bad as string) && fault(method, path, response);
  const { outcome, count } = await runTurn(gateway, 'top_ups');
  assert.deepEqual([outcome, count], ['failed', 2]);
});

test('a purchase at whose row the database always fails inside keeps no other waiting', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const sessions = [await open(gateway, { amount: '999' }), await open(gateway), await open(gateway)];
  for (const session of sessions) await checkout.pay(session);
  const damaged = { table: 'transfer', on: 'insert', when: sql`new.amount_micro_usd = 9990000` } as const;
  await failStatements(gateway.db, { ...damaged, state: 'XX001' });
  const { outcome, count } = await runTurn(gateway, 'top_ups');
  assert.deepEqual([outcome, count], ['failed', 2]);
});

test('R16: what came to nothing is deleted three weeks after it was begun, and a session of it that is paid after all is credited once', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const [old, young, unpaid, paid] = [
    await open(gateway),
    await open(gateway),
    await open(gateway),
    await open(gateway),
  ];
  const ended = (session: string, seconds: number) =>
    sql`update top_up set state = 'expired', created_at = now() - make_interval(secs => ${seconds})
        where session_id = ${session}`.execute(gateway.db);
  await ended(old, 21 * 24 * HOUR + 1);
  await ended(young, 20 * 24 * HOUR);
  await age(gateway, unpaid, 22 * 24 * HOUR);
  await checkout.pay(paid);
  await runTurn(gateway, 'top_ups');
  await sql`update top_up set state = 'open' where session_id = ${unpaid}`.execute(gateway.db);
  await unguarded(gateway.db, (db) =>
    sql`update top_up set created_at = now() - interval '1 year' where session_id = ${paid}`.execute(db),
  );
  assert.equal((await runTurn(gateway, 'unpaid_purchases')).count, 1);
  const left = await gateway.db.selectFrom('top_up').select('session_id').execute();
  assert.deepEqual(left.map(({ session_id }) => session_id).sort(), [young, unpaid, paid].sort());

  await checkout.pay(old);
  const back = () => gateway.call(`/top-up/complete?session_id=${old}`);
  const pages = await Promise.all([back(), back()]);
  assert.deepEqual(
    pages.map(({ status }) => status),
    [200, 200],
  );
  const { account_id, state } = await purchase(gateway, old);
  assert.equal(state, 'credited');
  assert.equal(await gateway.balance(account_id), 7_000_000n);
  assert.equal((await runTurn(gateway, 'checkout_sweep')).count, 0);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R16: a session that is paid at the moment at which its purchase is deleted is credited', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  await checkout.pay(session);
  const lock = await lockRows(t, gateway.databaseUrl, sql`delete from top_up where session_id = ${session}`);
  const page = gateway.call(`/top-up/complete?session_id=${session}`);
  await lock.untilWaiting(1);
  await lock.release();
  assert.equal((await page).status, 200);
  assert.equal(await gateway.balance((await purchase(gateway, session)).account_id), 7_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
});
