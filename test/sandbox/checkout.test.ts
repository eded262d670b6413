import assert from 'node:assert/strict';
import { mock } from 'node:test';
import type Stripe from 'stripe';
import { test } from 'tap';
import { STRIPE_KEY, stripeAt, testCheckout } from '../support/checkout.ts';
import { balanceOf, chargeOf, choose, FORM, get, idsOf, order, purchase, urlOf } from './checkout-client.ts';

test('payment redirects to the success URL and creates intent, charge and transaction', async (t) => {
  const { stripe } = await testCheckout(t);
  const session = await stripe.checkout.sessions.create(order);
  const answer = await choose(urlOf(session), 'accepted');
  t.equal(answer.status, 303);
  const target = `http://127.0.0.1:8080/top-up/complete?session_id=${session.id}`;
  t.equal(answer.headers.get('location'), target);
  const paid = await stripe.checkout.sessions.retrieve(session.id);
  t.strictSame([paid.status, paid.payment_status, paid.url], ['complete', 'paid', null]);
  const intent = await stripe.paymentIntents.retrieve(String(paid.payment_intent));
  t.strictSame([intent.object, intent.amount, intent.amount_received], ['payment_intent', 1250, 1250]);
  t.equal(intent.status, 'succeeded');
  const charge = await chargeOf(stripe, intent.id);
  t.strictSame([charge.amount, charge.amount_refunded, charge.refunded, charge.disputed], [1250, 0, false, false]);
  t.strictSame([charge.id, charge.paid, charge.payment_intent], [intent.latest_charge, true, intent.id]);
  const [received] = (await stripe.balanceTransactions.list({ source: charge.id })).data;
  t.strictSame([received?.type, received?.amount, received?.fee, received?.net], ['charge', 1250, 0, 1250]);
  t.equal(charge.balance_transaction, received?.id);
  t.equal((await choose(urlOf(session), 'accepted')).headers.get('location'), target);
  t.equal(await balanceOf(stripe), 1250, 'nothing is paid twice');
});

test('a session expires on request or by its time and can no longer be paid', async (t) => {
  const { stripe } = await testCheckout(t);
  const told = await stripe.checkout.sessions.create(order);
  t.equal((await stripe.checkout.sessions.expire(told.id)).status, 'expired');
  await assert.rejects(stripe.checkout.sessions.expire(told.id), { type: 'StripeInvalidRequestError' });
  const brief = await stripe.checkout.sessions.create(order);
  t.teardown(() => mock.reset());
  mock.timers.enable({ apis: ['Date'], now: (brief.expires_at - 1) * 1000 });
  t.equal((await stripe.checkout.sessions.retrieve(brief.id)).status, 'open');
  mock.timers.setTime(brief.expires_at * 1000);
  for (const { id, url } of [told, brief]) {
    const page = await get(urlOf({ url }));
    t.equal(page.status, 410);
    t.match(await page.text(), /expired/);
    t.equal((await choose(urlOf({ url }), 'accepted')).status, 410);
    const session = await stripe.checkout.sessions.retrieve(id);
    t.strictSame([session.status, session.payment_status, session.url], ['expired', 'unpaid', null]);
  }
  const rest = await stripe.checkout.sessions.list({ status: 'expired', limit: 1, starting_after: brief.id });
  t.strictSame(idsOf(rest), [told.id], 'the list goes on after one whose time has come');
});

test('an Idempotency-Key repeats its response and belongs to one set of parameters', async (t) => {
  const { stripe } = await testCheckout(t);
  const idempotencyKey = 'top-up-1';
  const answers = await Promise.all([1, 2, 3].map(() => stripe.checkout.sessions.create(order, { idempotencyKey })));
  t.equal(new Set(answers.map((session) => session.id)).size, 1);
  t.equal((await stripe.checkout.sessions.list()).data.length, 1);
  await assert.rejects(stripe.checkout.sessions.create({ ...order, metadata: { other: 'yes' } }, { idempotencyKey }), {
    type: 'StripeIdempotencyError',
    statusCode: 400,
  });
  const refused = { idempotencyKey: 'top-up-2' };
  await assert.rejects(stripe.checkout.sessions.create({ ...order, line_items: [] }, refused), { statusCode: 400 });
  await stripe.checkout.sessions.create(order, refused);
});

test('errors have the status, type, code and parameter that the SDK expects', async (t) => {
  const { stripe, origin } = await testCheckout(t);
  const missing = { statusCode: 404, code: 'resource_missing', type: 'StripeInvalidRequestError' };
  for (const attempt of [
    stripe.checkout.sessions.retrieve('cs_test_unknown'),
    stripe.paymentIntents.retrieve('pi_none'),
    stripe.refunds.retrieve('re_none'),
    stripe.disputes.retrieve('du_none'),
  ]) {
    await assert.rejects(attempt, missing);
  }
  await assert.rejects(stripeAt(origin, 'sk_test_other').checkout.sessions.list(), {
    type: 'StripeAuthenticationError',
    statusCode: 401,
  });
  t.equal((await get(`${origin}/v1/checkout/sessions`)).status, 401);
  await assert.rejects(stripe.customers.list(), { type: 'StripeInvalidRequestError', statusCode: 404 });
  await assert.rejects(stripe.paymentIntents.list(), { statusCode: 404 });
  const { intent } = await purchase(stripe);
  const expand = ['metadata'];
  await assert.rejects(stripe.paymentIntents.retrieve(intent, { expand }), { statusCode: 400, param: 'expand[0]' });

  const item = (price: object) => ({ ...order, line_items: [{ quantity: 1, price_data: price }] });
  const product_data = { name: 'n' };
  const faults: [object, string, string][] = [
    [{ ...order, mode: 'subscription' }, 'parameter_invalid', 'mode'],
    [{ ...order, success_url: undefined }, 'parameter_missing', 'success_url'],
    [{ ...order, success_url: 'javascript:alert(1)' }, 'parameter_invalid', 'success_url'],
    [{ ...order, colour: 'red' }, 'parameter_unknown', 'colour'],
    [{ ...order, line_items: undefined }, 'parameter_missing', 'line_items'],
    [
      item({ currency: 'usd', unit_amount: 1.5, product_data }),
      'parameter_invalid',
      'line_items[0][price_data][unit_amount]',
    ],
    [item({ currency: 'usd', unit_amount: 49, product_data }), 'parameter_invalid', 'line_items'],
    [
      item({ currency: 'zzzz', unit_amount: 100, product_data }),
      'parameter_invalid',
      'line_items[0][price_data][currency]',
    ],
    [item({ currency: 'usd', unit_amount: 100 }), 'parameter_missing', 'line_items[0][price_data][product_data]'],
  ];
  for (const [parameters, code, param] of faults) {
    const attempt = stripe.checkout.sessions.create(parameters as Stripe.Checkout.SessionCreateParams);
    await assert.rejects(attempt, { type: 'StripeInvalidRequestError', statusCode: 400, code, param });
  }
});

test('a malformed body is a 4xx in the same error format', async (t) => {
  const { origin } = await testCheckout(t);
  const form = FORM['content-type'];
  const cases: [string, string, number][] = [
    ['mode=payment&mode[x]=1', form, 400],
    ['mode=payment&mode=payment', form, 400],
    ['a[b=1', form, 400],
    [`a${'[b]'.repeat(50)}=1`, form, 400],
    ['__proto__[mode]=payment', form, 400],
    ['{}', 'application/json', 415],
    ['a'.repeat(70_000), form, 413],
  ];
  for (const [body, contentType, status] of cases) {
    const headers = { authorization: `Bearer ${STRIPE_KEY}`, 'content-type': contentType };
    const answer = await fetch(`${origin}/v1/checkout/sessions`, { method: 'POST', headers, body });
    t.equal(answer.status, status, body.slice(0, 30));
    t.equal(((await answer.json()) as { error: { type: string } }).error.type, 'invalid_request_error');
  }
});
