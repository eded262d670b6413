import assert from 'node:assert/strict';
import { test } from 'tap';
import { balanceOf, purchase, setUp } from './checkout-client.ts';

test('an open dispute takes its amount, and gives it back when it is won', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const { session, intent, charge } = await purchase(stripe);
  const { id } = await checkout.openDispute({ session, amountCents: 700 });
  const opened = await stripe.disputes.retrieve(id);
  assert.deepEqual([opened.object, opened.amount, opened.status], ['dispute', 700, 'needs_response']);
  assert.deepEqual([opened.charge, opened.payment_intent, opened.is_charge_refundable], [charge, intent, false]);
  assert.deepEqual(
    opened.balance_transactions.map(({ type, net, reporting_category }) => [type, net, reporting_category]),
    [['adjustment', -700, 'dispute']],
  );
  assert.equal((await stripe.charges.retrieve(charge)).disputed, true);
  assert.equal(await balanceOf(stripe), 550);
  await checkout.updateDispute(id, 'under_review');
  assert.equal(await balanceOf(stripe), 550, 'a review moves nothing');

  await checkout.updateDispute(id, 'won');
  const won = await stripe.disputes.retrieve(id);
  assert.equal(won.status, 'won');
  assert.deepEqual(
    won.balance_transactions.map(({ net, source }) => [net, source]),
    [
      [-700, id],
      [700, id],
    ],
  );
  assert.equal(won.balance_transactions[1]?.reporting_category, 'dispute_reversal');
  assert.equal(await balanceOf(stripe), 1250);
  assert.equal(
    (await stripe.refunds.create({ charge, amount: 100 })).status,
    'succeeded',
    'what was won is refundable',
  );
});

test('a charge that was charged back can not be refunded, one that the bank only asks about can', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const { session, charge } = await purchase(stripe);
  const { id } = await checkout.openDispute({ session, status: 'warning_needs_response' });
  assert.equal((await stripe.disputes.retrieve(id)).is_charge_refundable, true);
  assert.equal(await balanceOf(stripe), 1250);
  await stripe.refunds.create({ charge, amount: 250 });
  for (const status of ['needs_response', 'under_review', 'lost'] as const) {
    await checkout.updateDispute(id, status);
    await assert.rejects(stripe.refunds.create({ charge }), { statusCode: 400, code: 'charge_disputed' });
  }
  assert.equal(await balanceOf(stripe), -250, 'both the refund and the whole charge are gone');
});

test('what takes nothing moves nothing', async (t) => {
  const checkout = await setUp(t);
  const { session } = await purchase(checkout.stripe);
  for (const status of ['warning_under_review', 'warning_closed', 'prevented', 'won'] as const) {
    const { id } = await checkout.openDispute({ session, status });
    assert.deepEqual((await checkout.stripe.disputes.retrieve(id)).balance_transactions, []);
  }
  assert.equal(await balanceOf(checkout.stripe), 1250);
  await assert.rejects(checkout.openDispute({ session, amountCents: 1251 }), { name: 'ApiError' });
  await assert.rejects(checkout.openDispute({ session: 'cs_test_none' }), { status: 404 });
});

test('disputes and balance transactions are listed by what they are about', async (t) => {
  const checkout = await setUp(t);
  const { stripe } = checkout;
  const [one, two] = [await purchase(stripe), await purchase(stripe)];
  const first = await checkout.openDispute({ session: one.session });
  const second = await checkout.openDispute({ session: two.session });
  const idsOf = ({ data }: { data: { id: string }[] }) => data.map(({ id }) => id);
  assert.deepEqual(idsOf(await stripe.disputes.list()), [second.id, first.id]);
  assert.deepEqual(idsOf(await stripe.disputes.list({ charge: one.charge })), [first.id]);
  assert.deepEqual(idsOf(await stripe.disputes.list({ payment_intent: two.intent })), [second.id]);
  const later = Math.floor(Date.now() / 1000) + 60;
  assert.deepEqual(idsOf(await stripe.disputes.list({ created: { gte: later } })), []);
  assert.equal((await stripe.disputes.list({ created: { lt: later }, limit: 1 })).has_more, true);

  const ofDispute = await stripe.balanceTransactions.list({ source: first.id, expand: ['data.source'] });
  const source = ofDispute.data[0]?.source;
  assert.ok(source && typeof source === 'object');
  assert.deepEqual([ofDispute.data.length, source.id, source.object], [1, first.id, 'dispute']);
  assert.equal((await stripe.balanceTransactions.list({ type: 'charge' })).data.length, 2);
  assert.equal((await stripe.balanceTransactions.list({ type: 'charge', currency: 'eur' })).data.length, 0);
  assert.equal((await stripe.balanceTransactions.list({ created: { gte: later } })).data.length, 0);
});
