import assert from 'node:assert/strict';
import type Stripe from 'stripe';
import { test } from 'tap';
import { balanceOf, idsOf, purchase, setUp } from './checkout-client.ts';

test('a payment can be refunded in parts, up to its amount', async (t) => {
  const { stripe } = await setUp(t);
  const { intent, charge } = await purchase(stripe);
  const first = await stripe.refunds.create({
    payment_intent: intent,
    amount: 250,
    metadata: { operator: 'ann' },
    expand: ['charge', 'balance_transaction'],
  });
  assert.deepEqual([first.object, first.amount, first.currency, first.status], ['refund', 250, 'usd', 'succeeded']);
  assert.deepEqual(first.metadata, { operator: 'ann' });
  const charged = first.charge as Stripe.Charge;
  assert.deepEqual([charged.amount_refunded, charged.refunded], [250, false]);
  const taken = first.balance_transaction as Stripe.BalanceTransaction;
  assert.deepEqual([taken.type, taken.net, taken.source], ['refund', -250, first.id]);

  await assert.rejects(stripe.refunds.create({ payment_intent: intent, amount: 1001 }), {
    statusCode: 400,
    param: 'amount',
  });
  assert.equal((await stripe.refunds.create({ payment_intent: intent })).amount, 1000, 'by default all that is left');
  await assert.rejects(stripe.refunds.create({ payment_intent: intent, amount: 1 }), {
    code: 'charge_already_refunded',
  });
  assert.equal((await stripe.charges.retrieve(charge)).refunded, true);
  assert.equal(await balanceOf(stripe), 0);
});

test('a refund without a payment or of an unknown one is refused', async (t) => {
  const { stripe } = await setUp(t);
  const { intent } = await purchase(stripe);
  const missing = { statusCode: 400, code: 'parameter_missing', param: 'payment_intent' };
  await assert.rejects(stripe.refunds.create({ amount: 5 }), missing);
  await assert.rejects(stripe.refunds.create({ payment_intent: 'pi_none' }), { statusCode: 404 });
  await assert.rejects(stripe.refunds.create({ payment_intent: intent, amount: 0 }), { param: 'amount' });
  assert.deepEqual((await stripe.refunds.list()).data, []);
});

test('repeated refunds with one Idempotency-Key happen once', async (t) => {
  const { stripe } = await setUp(t);
  const { intent, charge } = await purchase(stripe);
  const key = { idempotencyKey: 'refund-1' };
  const refunds = await Promise.all(
    [1, 2, 3].map(() => stripe.refunds.create({ payment_intent: intent, amount: 100 }, key)),
  );
  assert.equal(new Set(refunds.map(({ id }) => id)).size, 1);
  await assert.rejects(stripe.refunds.create({ payment_intent: intent, amount: 200 }, key), {
    type: 'StripeIdempotencyError',
  });
  assert.equal((await stripe.charges.retrieve(charge)).amount_refunded, 100);
});

test('a failed or canceled refund returns its amount and is final', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const { session, charge } = await purchase(stripe);
  const { id } = await checkout.refund({ session, amountCents: 400, status: 'pending' });
  assert.equal((await stripe.refunds.retrieve(id)).status, 'pending');
  assert.equal(await balanceOf(stripe), 850);
  await checkout.settleRefund(id, 'succeeded');
  assert.equal((await stripe.refunds.retrieve(id)).status, 'succeeded');
  await checkout.settleRefund(id, 'failed');

  const failed = await stripe.refunds.retrieve(id, { expand: ['failure_balance_transaction'] });
  assert.deepEqual([failed.status, failed.failure_reason], ['failed', 'unknown']);
  const returned = failed.failure_balance_transaction as Stripe.BalanceTransaction;
  assert.deepEqual([returned.type, returned.net, returned.source], ['refund_failure', 400, id]);
  assert.equal((await stripe.charges.retrieve(charge)).amount_refunded, 0);
  assert.equal(await balanceOf(stripe), 1250);
  await assert.rejects(checkout.settleRefund(id, 'succeeded'), { name: 'ApiError', status: 400 });

  const canceled = await checkout.refund({ session, status: 'requires_action' });
  assert.equal((await stripe.charges.retrieve(charge)).refunded, true);
  await checkout.settleRefund(canceled.id, 'canceled');
  assert.equal(await balanceOf(stripe), 1250);
});

test('an open dispute withdraws its amount, and a won one returns it', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const { session, intent, charge } = await purchase(stripe);
  const { id } = await checkout.openDispute({ session, amountCents: 700 });
  const opened = await stripe.disputes.retrieve(id);
  assert.deepEqual([opened.object, opened.amount, opened.status], ['dispute', 700, 'needs_response']);
  assert.deepEqual([opened.charge, opened.payment_intent, opened.is_charge_refundable], [charge, intent, false]);
  assert.equal((await stripe.charges.retrieve(charge)).disputed, true);
  assert.equal(await balanceOf(stripe), 550);
  await checkout.updateDispute(id, 'under_review');
  assert.equal(await balanceOf(stripe), 550, 'a review moves nothing');

  await checkout.updateDispute(id, 'won');
  const won = await stripe.disputes.retrieve(id);
  assert.equal(won.status, 'won');
  assert.deepEqual(
    won.balance_transactions.map(({ type, net, reporting_category, source }) => [
      type,
      net,
      reporting_category,
      source,
    ]),
    [
      ['adjustment', -700, 'dispute', id],
      ['adjustment', 700, 'dispute_reversal', id],
    ],
  );
  assert.equal(await balanceOf(stripe), 1250);
  assert.equal(
    (await stripe.refunds.create({ payment_intent: intent, amount: 100 })).status,
    'succeeded',
    'it is refundable again',
  );
});

test('a charge under dispute cannot be refunded, one under inquiry can', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const { session, intent } = await purchase(stripe);
  const { id } = await checkout.openDispute({ session, status: 'warning_needs_response' });
  assert.equal((await stripe.disputes.retrieve(id)).is_charge_refundable, true);
  assert.equal(await balanceOf(stripe), 1250);
  await stripe.refunds.create({ payment_intent: intent, amount: 250 });
  for (const status of ['needs_response', 'under_review', 'lost'] as const) {
    await checkout.updateDispute(id, status);
    await assert.rejects(stripe.refunds.create({ payment_intent: intent }), {
      statusCode: 400,
      code: 'charge_disputed',
    });
  }
  assert.equal(await balanceOf(stripe), -250, 'both the refund and the whole charge are gone');
  for (const status of ['warning_under_review', 'warning_closed', 'prevented', 'won'] as const) {
    assert.deepEqual((await checkout.openDispute({ session, status })).balance_transactions, [], status);
  }
  await assert.rejects(checkout.openDispute({ session, amountCents: 1251 }), { name: 'ApiError' });
  await assert.rejects(checkout.openDispute({ session: 'cs_test_none' }), { status: 404 });
});

test('disputes and balance transactions are listed by their source', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const [one, two] = [await purchase(stripe), await purchase(stripe)];
  const first = await checkout.openDispute({ session: one.session });
  const second = await checkout.openDispute({ session: two.session });
  assert.deepEqual(idsOf(await stripe.disputes.list()), [second.id, first.id]);
  assert.deepEqual(idsOf(await stripe.disputes.list({ charge: one.charge })), [first.id]);
  assert.deepEqual(idsOf(await stripe.disputes.list({ payment_intent: two.intent })), [second.id]);

  const ofDispute = await stripe.balanceTransactions.list({ source: first.id, expand: ['data.source'] });
  const source = ofDispute.data[0]?.source as Stripe.Dispute;
  assert.deepEqual([ofDispute.data.length, source.id, source.object], [1, first.id, 'dispute']);
  assert.equal((await stripe.balanceTransactions.list({ type: 'charge' })).data.length, 2);
  assert.equal((await stripe.balanceTransactions.list({ type: 'charge', currency: 'eur' })).data.length, 0);
});
