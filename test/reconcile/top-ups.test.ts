import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import type { FaultyCheckout } from '../support/faulty-checkout.ts';
import { startGateway } from '../support/gateway.ts';
import { runTurn } from '../support/reconcile.ts';
import { until } from '../support/until.ts';
import { age, credited, HOUR, open, purchase, settings, setUp } from './open-purchases.ts';

const retrieves = (checkout: FaultyCheckout, session = '') =>
  checkout.calls.filter(({ method, path }) => method === 'GET' && path.startsWith(`/v1/checkout/sessions/${session}`));

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
