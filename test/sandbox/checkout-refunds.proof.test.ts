import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { test } from 'tap';
import { balanceOf, order, purchase, setUp } from './checkout-client.ts';

test('a payment is refunded in parts, and never by more than is left', async (t) => {
  const { stripe } = await setUp(t);
  const { intent, charge } = await purchase(stripe);
  const first = await stripe.refunds.create({
    ...{ payment_intent: intent, amount: 250, reason: 'requested_by_customer', metadata: { operator: 'ann' } },
    expand: ['charge', 'balance_transaction'],
  });
  assert.deepEqual([first.object, first.amount, first.currency, first.status], ['refund', 250, 'usd', 'succeeded']);
  assert.deepEqual([first.reason, first.metadata], ['requested_by_customer', { operator: 'ann' }]);
  assert.ok(first.charge && typeof first.charge === 'object');
  assert.deepEqual([first.charge.amount_refunded, first.charge.refunded], [250, false]);
  assert.ok(first.balance_transaction && typeof first.balance_transaction === 'object');
  assert.deepEqual([first.balance_transaction.type, first.balance_transaction.net], ['refund', -250]);
  assert.equal(first.balance_transaction.source, first.id);

  await assert.rejects(stripe.refunds.create({ charge, amount: 1001 }), (error: Error & Record<string, unknown>) => {
    assert.deepEqual([error.statusCode, error.code, error.param], [400, undefined, 'amount']);
    assert.match(error.message, /greater than unrefunded amount on charge/);
    return true;
  });
  assert.equal((await stripe.refunds.create({ charge })).amount, 1000, 'by default all that is left');
  await assert.rejects(stripe.refunds.create({ charge, amount: 1 }), {
    ...{ statusCode: 400, code: 'charge_already_refunded', message: `Charge ${charge} has already been refunded.` },
  });
  assert.equal((await stripe.charges.retrieve(charge)).refunded, true);
  assert.equal(await balanceOf(stripe), 0);
});

test('a refund that names no payment, an unknown one or two is refused', async (t) => {
  const { stripe } = await setUp(t);
  const { intent, charge } = await purchase(stripe);
  const other = await purchase(stripe);
  await assert.rejects(stripe.refunds.create({ amount: 5 }), { statusCode: 400, code: 'parameter_missing' });
  await assert.rejects(stripe.refunds.create({ charge: 'ch_none' }), { statusCode: 404, param: 'charge' });
  await assert.rejects(stripe.refunds.create({ payment_intent: 'pi_none' }), { param: 'payment_intent' });
  await assert.rejects(stripe.refunds.create({ charge, payment_intent: other.intent }), { param: 'charge' });
  await assert.rejects(stripe.refunds.create({ charge, amount: 0 }), { param: 'amount' });
  assert.deepEqual((await stripe.refunds.list({ payment_intent: intent })).data, []);
});

test('a repeated refund under one Idempotency-Key happens once', async (t) => {
  const { stripe } = await setUp(t);
  const { charge } = await purchase(stripe);
  const key = { idempotencyKey: 'refund-1' };
  const refunds = await Promise.all([1, 2, 3].map(() => stripe.refunds.create({ charge, amount: 100 }, key)));
  assert.equal(new Set(refunds.map(({ id }) => id)).size, 1);
  await assert.rejects(stripe.refunds.create({ charge, amount: 200 }, key), { type: 'StripeIdempotencyError' });
  assert.equal((await stripe.charges.retrieve(charge)).amount_refunded, 100);
});

test('a refund comes out later, and one that fails gives its amount back', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const { session, charge } = await purchase(stripe);
  const { id } = await checkout.refund({ session, amountCents: 400, status: 'pending' });
  assert.equal((await stripe.refunds.retrieve(id)).status, 'pending');
  assert.equal(await balanceOf(stripe), order.line_items[0].price_data.unit_amount - 400);
  await checkout.settleRefund(id, 'succeeded');
  assert.equal((await stripe.refunds.retrieve(id)).status, 'succeeded');
  await checkout.settleRefund(id, 'failed');

  const failed = await stripe.refunds.retrieve(id, { expand: ['failure_balance_transaction'] });
  assert.deepEqual([failed.status, failed.failure_reason], ['failed', 'unknown']);
  const returned = failed.failure_balance_transaction;
  assert.ok(returned && typeof returned === 'object');
  assert.deepEqual([returned.type, returned.net, returned.source], ['refund_failure', 400, id]);
  assert.equal((await stripe.charges.retrieve(charge)).amount_refunded, 0);
  assert.equal(await balanceOf(stripe), 1250);
  await assert.rejects(checkout.settleRefund(id, 'succeeded'), { name: 'ApiError', status: 400 });

  const canceled = await checkout.refund({ session, status: 'requires_action' });
  assert.equal((await stripe.charges.retrieve(charge)).refunded, true);
  await checkout.settleRefund(canceled.id, 'canceled');
  assert.equal(await balanceOf(stripe), 1250);
});

test('refunds are listed newest first, in pages, by time, charge and payment intent', async (t) => {
  const { stripe } = await setUp(t);
  const [one, two] = [await purchase(stripe), await purchase(stripe)];
  t.teardown(() => mock.reset());
  mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  const ids: string[] = [];
  for (let second = 0; second < 5; second += 1) {
    mock.timers.setTime((1_800_000_000 + second) * 1000);
    const { charge } = second === 3 ? two : one;
    ids.unshift((await stripe.refunds.create({ charge, amount: 50 })).id);
  }
  const idsOf = ({ data }: { data: { id: string }[] }) => data.map(({ id }) => id);
  const first = await stripe.refunds.list({ limit: 2 });
  assert.deepEqual([idsOf(first), first.has_more], [ids.slice(0, 2), true]);
  const rest = await stripe.refunds.list({ limit: 3, starting_after: ids[1] as string });
  assert.deepEqual([idsOf(rest), rest.has_more], [ids.slice(2), false]);
  const seen: string[] = [];
  for await (const { id } of stripe.refunds.list({ limit: 2 })) seen.push(id);
  assert.deepEqual(seen, ids);
  const some = await stripe.refunds.list({ created: { gte: 1_800_000_001, lt: 1_800_000_003 } });
  assert.deepEqual(idsOf(some), ids.slice(2, 4));
  assert.deepEqual(idsOf(await stripe.refunds.list({ charge: two.charge })), [ids[1]]);
  assert.deepEqual(idsOf(await stripe.refunds.list({ payment_intent: two.intent })), [ids[1]]);
});
