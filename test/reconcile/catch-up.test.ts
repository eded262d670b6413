import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { catchUp } from '../../src/reconcile/catch-up.ts';
import { withLease } from '../../src/reconcile/lease.ts';
import { answerWith, startFaultyCheckout } from '../support/faulty-checkout.ts';
import { startGateway } from '../support/gateway.ts';
import { testRunner } from '../support/reconcile.ts';
import { until } from '../support/until.ts';

const DAY = 86_400;

test('the lists are read again from the moment on, past what was read since, and while another process is at it', async (t) => {
  const before = await startGateway(t);
  const { id: instance_id } = await before.db.selectFrom('instance').select('id').executeTakeFirstOrThrow();
  const created = Math.floor(Date.now() / 1000) - 3 * DAY;
  const metadata = { instance_id, top_up_id: randomUUID(), account_id: randomUUID() };
  const session = {
    ...{ id: `cs_test_${randomUUID()}`, created, expiresAt: created + DAY, state: 'paid' as const },
    ...{ paymentIntent: 'pi_1', currency: 'usd', successUrl: 'http://speechgate.test/back', cancelUrl: null },
    lineItems: [{ name: 'credit', description: null, unitAmount: 700, quantity: 1 }],
    ...{ clientReferenceId: null, customerEmail: null, metadata },
  };
  const checkout = await startFaultyCheckout(t, { sessions: [session] });
  const card = { STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase };
  const { databaseUrl } = before;
  const gateway = await startGateway(t, card, { databaseUrl });
  const readUntil = sql<Date>`now() - interval '25 hours'`;
  await gateway.db.updateTable('processor_list').set({ read_until: readUntil }).execute();
  const runner = testRunner(gateway);
  assert.deepEqual((await runner.turn()).map(({ count }) => count).filter(Boolean), []);

  let isTaken = false;
  let giveUp = () => {};
  const other = withLease(gateway.db, 'checkout_sweep', 0, async () => {
    isTaken = true;
    await new Promise<void>((resolve) => {
      giveUp = resolve;
    });
  });
  await until(() => isTaken);
  const since = new Date((created - 60) * 1000);
  const catching = catchUp(gateway.db, runner, since);
  await until(async () => {
    const { rows } = await sql`select from processor_list where name = 'refunds' and pass_started_at is null
      and read_until > ${since}`.execute(gateway.db);
    return rows.length > 0;
  });
  giveUp();
  await other;
  const results = await catching;
  assert.deepEqual(
    results.filter(({ count, outcome }) => count > 0 || outcome !== 'done'),
    [{ name: 'checkout_sweep', outcome: 'done', count: 1 }],
  );
  assert.equal(await gateway.balance(metadata.account_id), 7_000_000n);
  assert.equal(
    (await catchUp(gateway.db, runner, since)).find(({ count }) => count > 0),
    undefined,
  );
  assert.deepEqual(await audit(gateway.db), []);
});

test('one purchase that fails keeps no other from being asked for', async (t) => {
  const checkout = await startFaultyCheckout(t);
  const card = { STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase };
  const gateway = await startGateway(t, card);
  await sql`
    insert into top_up (state, account_id, amount_cents, session_id, created_at)
    select 'open', gen_random_uuid(), 700, 'cs_test_' || n, now() - interval '2 hours' from generate_series(1, 60) n`.execute(
    gateway.db,
  );
  const refused = answerWith(403, '{"error":{"type":"invalid_request_error"}}');
  checkout.fault = (method, path, response) => path.endsWith('/cs_test_7') && refused(method, path, response);
  const results = await catchUp(gateway.db, testRunner(gateway), new Date(Date.now() - DAY * 1000));
  const { outcome } = results.find(({ name }) => name === 'top_ups') ?? {};
  assert.equal(outcome, 'failed', 'which is told');
  const asked = new Set(checkout.calls.map(({ path }) => path).filter((path) => path.includes('cs_test_')));
  assert.equal(asked.size, 60);
});

test('a processor that is away ends it', async (t) => {
  const checkout = await startFaultyCheckout(t);
  const card = { STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase };
  const gateway = await startGateway(t, card);
  checkout.fault = answerWith(500, '');
  const results = await catchUp(gateway.db, testRunner(gateway), new Date(Date.now() - DAY * 1000));
  assert.ok(results.some(({ outcome }) => outcome === 'failed'));
});
