import assert from 'node:assert/strict';
import { test } from 'tap';
import { balanceOf, choose, order, purchase, setUp, urlOf } from './checkout-client.ts';

test('a paid session leads to its payment intent, charge and balance transaction', async (t) => {
  const { stripe } = await setUp(t);
  const created = await stripe.checkout.sessions.create({
    ...order,
    payment_intent_data: { description: 'credits', metadata: { purchase: 'p-1' } },
  });
  assert.equal((await choose(urlOf(created), 'accepted')).status, 303);
  const expand = ['payment_intent.latest_charge.balance_transaction'];
  const session = await stripe.checkout.sessions.retrieve(created.id, { expand });
  const intent = session.payment_intent;
  assert.ok(intent && typeof intent === 'object');
  assert.deepEqual([intent.object, intent.amount, intent.amount_received], ['payment_intent', 1250, 1250]);
  assert.deepEqual([intent.status, intent.description, intent.metadata], ['succeeded', 'credits', { purchase: 'p-1' }]);
  const charge = intent.latest_charge;
  assert.ok(charge && typeof charge === 'object');
  assert.deepEqual([charge.amount, charge.amount_refunded, charge.refunded, charge.disputed], [1250, 0, false, false]);
  assert.deepEqual([charge.paid, charge.payment_intent], [true, intent.id]);
  const brought = charge.balance_transaction;
  assert.ok(brought && typeof brought === 'object');
  assert.deepEqual([brought.type, brought.amount, brought.fee, brought.net], ['charge', 1250, 0, 1250]);
  assert.equal(brought.source, charge.id);

  assert.equal((await stripe.paymentIntents.retrieve(intent.id)).latest_charge, charge.id);
  assert.equal((await stripe.charges.retrieve(charge.id)).balance_transaction, brought.id);
  assert.equal((await stripe.balanceTransactions.retrieve(brought.id)).net, 1250);
  assert.equal(await balanceOf(stripe), 1250);
});

test('sessions are found by payment intent, and lists expand what they hold', async (t) => {
  const { stripe } = await setUp(t);
  const bought = await purchase(stripe);
  await purchase(stripe);
  const expand = ['data.payment_intent.latest_charge'];
  const { data } = await stripe.checkout.sessions.list({ payment_intent: bought.intent, expand });
  assert.deepEqual(
    data.map(({ id }) => id),
    [bought.session],
  );
  const intent = data[0]?.payment_intent;
  assert.ok(intent && typeof intent === 'object' && typeof intent.latest_charge === 'object');
  assert.equal(intent.latest_charge?.id, bought.charge);

  const unpaid = await stripe.checkout.sessions.create({ ...order, expand: ['payment_intent.latest_charge'] });
  assert.equal(unpaid.payment_intent, null);
  for (const path of ['metadata', 'payment_intent.nothing', 'a.b.c.d.e']) {
    const attempt = stripe.checkout.sessions.retrieve(bought.session, { expand: [path] });
    await assert.rejects(attempt, { statusCode: 400, type: 'StripeInvalidRequestError', param: 'expand' });
  }
});

test('what does not exist is missing in the form that the SDK knows, and the account can be asked', async (t) => {
  const { stripe } = await setUp(t);
  const missing = { statusCode: 404, code: 'resource_missing', type: 'StripeInvalidRequestError' };
  await assert.rejects(stripe.paymentIntents.retrieve('pi_none'), { ...missing, param: 'intent' });
  await assert.rejects(stripe.charges.retrieve('ch_none'), { ...missing, message: "No such charge: 'ch_none'" });
  const { intent } = await purchase(stripe);
  await assert.rejects(stripe.charges.retrieve(intent), missing);
  await assert.rejects(stripe.refunds.retrieve('re_none'), missing);
  await assert.rejects(stripe.disputes.retrieve('du_none'), missing);
  await assert.rejects(stripe.balanceTransactions.retrieve('txn_none'), missing);
  const account = await stripe.accounts.retrieveCurrent();
  assert.deepEqual([account.object, account.charges_enabled], ['account', true]);
});
