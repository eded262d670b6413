import assert from 'node:assert/strict';
import { test } from 'tap';
import { testCheckout } from '../support/checkout.ts';
import { balanceOf, chargeOf, idsOf, purchase } from './checkout-client.ts';

test('a payment can be refunded in parts, up to its amount', async (t) => {
  const { stripe } = await testCheckout(t);
  const { intent } = await purchase(stripe);
  const first = await stripe.refunds.create({ payment_intent: intent, amount: 250, metadata: { operator: 'ann' } });
  t.strictSame([first.object, first.amount, first.currency, first.status], ['refund', 250, 'usd', 'succeeded']);
  t.strictSame(first.metadata, { operator: 'ann' });
  const charge = await chargeOf(stripe, intent);
  t.strictSame([charge.id, charge.amount_refunded, charge.refunded], [first.charge, 250, false]);
  const taken = await stripe.balanceTransactions.retrieve(String(first.balance_transaction));
  t.strictSame([taken.type, taken.net, taken.source], ['refund', -250, first.id]);
  const refused: [object, object][] = [
    [
      { payment_intent: intent, amount: 1001 },
      { statusCode: 400, param: 'amount' },
    ],
    [
      { payment_intent: intent, amount: 0 },
      { statusCode: 400, param: 'amount' },
    ],
    [{ amount: 5 }, { statusCode: 400, code: 'parameter_missing', param: 'payment_intent' }],
    [{ payment_intent: 'pi_none' }, { statusCode: 404 }],
  ];
  for (const [refund, error] of refused) await assert.rejects(stripe.refunds.create(refund), error);
  t.strictSame(idsOf(await stripe.refunds.list()), [first.id]);
  t.equal((await stripe.refunds.create({ payment_intent: intent })).amount, 1000, 'by default all that is left');
  await t.rejects(stripe.refunds.create({ payment_intent: intent, amount: 1 }), { code: 'charge_already_refunded' });
  t.strictSame([(await chargeOf(stripe, intent)).refunded, await balanceOf(stripe)], [true, 0]);
});

test('a failed or canceled refund returns its amount and is final', async (t) => {
  const checkout = await testCheckout(t);
  const { stripe } = checkout;
  const { session, intent } = await purchase(stripe);
  const { id } = await checkout.refund({ session, amountCents: 400, status: 'pending' });
  t.strictSame([(await stripe.refunds.retrieve(id)).status, await balanceOf(stripe)], ['pending', 850]);
  await checkout.settleRefund(id, 'succeeded');
  t.equal((await stripe.refunds.retrieve(id)).status, 'succeeded');
  await checkout.settleRefund(id, 'failed');
  const failed = await stripe.refunds.retrieve(id);
  t.strictSame([failed.status, failed.failure_reason], ['failed', 'unknown']);
  const returned = await stripe.balanceTransactions.retrieve(String(failed.failure_balance_transaction));
  t.strictSame([returned.type, returned.net, returned.source], ['refund_failure', 400, id]);
  t.strictSame([(await chargeOf(stripe, intent)).amount_refunded, await balanceOf(stripe)], [0, 1250]);
  await t.rejects(checkout.settleRefund(id, 'succeeded'), { name: 'ApiError', status: 400 });
  const canceled = await checkout.refund({ session, status: 'requires_action' });
  t.equal((await chargeOf(stripe, intent)).refunded, true);
  await checkout.settleRefund(canceled.id, 'canceled');
  t.equal(await balanceOf(stripe), 1250);
});

test('an open dispute withdraws its amount, and a won one returns it', async (t) => {
  const checkout = await testCheckout(t);
  const { stripe } = checkout;
  const { session, intent } = await purchase(stripe);
  const { id } = await checkout.openDispute({ session, amountCents: 700 });
  const opened = await stripe.disputes.retrieve(id);
  t.strictSame([opened.object, opened.amount, opened.status], ['dispute', 700, 'needs_response']);
  t.strictSame([opened.payment_intent, opened.is_charge_refundable], [intent, false]);
  const charge = await chargeOf(stripe, intent);
  t.strictSame([charge.id, charge.disputed], [opened.charge, true]);
  t.equal(await balanceOf(stripe), 550);
  await checkout.updateDispute(id, 'under_review');
  t.equal(await balanceOf(stripe), 550, 'a review moves nothing');
  await checkout.updateDispute(id, 'won');
  const won = await stripe.disputes.retrieve(id);
  t.equal(won.status, 'won');
  t.strictSame(
    won.balance_transactions.map((moved) => [moved.type, moved.net, moved.reporting_category, moved.source]),
    [
      ['adjustment', -700, 'dispute', id],
      ['adjustment', 700, 'dispute_reversal', id],
    ],
  );
  t.equal(await balanceOf(stripe), 1250);
  const { status } = await stripe.refunds.create({ payment_intent: intent, amount: 100 });
  t.equal(status, 'succeeded', 'it is refundable again');
});

test('a charge under dispute cannot be refunded, one under inquiry can', async (t) => {
  const checkout = await testCheckout(t);
  const { stripe } = checkout;
  const { session, intent } = await purchase(stripe);
  const { id } = await checkout.openDispute({ session, status: 'warning_needs_response' });
  t.strictSame([(await stripe.disputes.retrieve(id)).is_charge_refundable, await balanceOf(stripe)], [true, 1250]);
  await stripe.refunds.create({ payment_intent: intent, amount: 250 });
  for (const status of ['needs_response', 'under_review', 'lost'] as const) {
    await checkout.updateDispute(id, status);
    await t.rejects(stripe.refunds.create({ payment_intent: intent }), { statusCode: 400, code: 'charge_disputed' });
  }
  t.equal(await balanceOf(stripe), -250, 'both the refund and the whole charge are gone');
  for (const status of ['warning_under_review', 'warning_closed', 'prevented', 'won'] as const)
    t.strictSame((await checkout.openDispute({ session, status })).balance_transactions, [], status);
  await t.rejects(checkout.openDispute({ session, amountCents: 1251 }), { name: 'ApiError' });
  await assert.rejects(checkout.openDispute({ session: 'cs_test_none' }), { status: 404 });
});
