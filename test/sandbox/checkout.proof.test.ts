import assert from 'node:assert/strict';
import { mock } from 'node:test';
import type Stripe from 'stripe';
import { test } from 'tap';
import { choose, client, FORM, get, KEY, order, setUp, urlOf } from './checkout-client.ts';

test('the SDK creates a session and finds it again with every field that was given', async (t) => {
  const { stripe, origin } = await setUp(t);
  const before = Math.floor(Date.now() / 1000);
  const created = await stripe.checkout.sessions.create(order);
  assert.match(created.id, /^cs_test_\w+$/);
  assert.equal(created.object, 'checkout.session');
  assert.equal(created.url, `${origin}/c/pay/${created.id}`);
  assert.equal(created.status, 'open');
  assert.equal(created.payment_status, 'unpaid');
  assert.equal(created.amount_total, 1250);
  assert.equal(created.currency, 'usd');
  assert.equal(created.livemode, false);
  assert.equal(created.payment_intent, null);
  assert.equal(created.client_reference_id, 'account-1');
  assert.equal(created.success_url, order.success_url);
  assert.deepEqual(created.metadata, order.metadata);
  assert.ok(created.created >= before && created.created <= before + 60);
  assert.equal(created.expires_at, created.created + 86_400);

  const found = await stripe.checkout.sessions.retrieve(created.id);
  assert.deepEqual({ ...found, lastResponse: undefined }, { ...created, lastResponse: undefined });
});

test('the total is the sum of the line items', async (t) => {
  const { stripe } = await setUp(t);
  const item = (unit_amount: number, quantity: number) => ({
    quantity,
    price_data: { currency: 'EUR', unit_amount, product_data: { name: 'n', description: 'd' } },
  });
  const session = await stripe.checkout.sessions.create({
    ...order,
    line_items: [item(199, 3), item(0, 1), item(1, 2)],
    payment_intent_data: { description: 'credits', metadata: { a: 'b' } },
  });
  assert.equal(session.amount_total, 599);
  assert.equal(session.currency, 'eur');
});

test('paying completes the session and leads to the success URL with its id', async (t) => {
  const { stripe } = await setUp(t);
  const session = await stripe.checkout.sessions.create(order);
  const answer = await choose(urlOf(session), 'accepted');
  assert.equal(answer.status, 303);
  const target = `http://127.0.0.1:8080/top-up/complete?session_id=${session.id}`;
  assert.equal(answer.headers.get('location'), target);

  const paid = await stripe.checkout.sessions.retrieve(session.id);
  assert.equal(paid.status, 'complete');
  assert.equal(paid.payment_status, 'paid');
  assert.match(String(paid.payment_intent), /^pi_/);
  assert.equal(paid.url, null);

  const page = await get(urlOf(session));
  assert.equal(page.status, 200);
  const text = await page.text();
  assert.match(text, /Already paid/);
  assert.ok(text.includes(`href="${target}"`));
  assert.doesNotMatch(text, /<form/);

  const again = await choose(urlOf(session), 'accepted');
  assert.equal(again.headers.get('location'), target);
  const same = await stripe.checkout.sessions.retrieve(session.id);
  assert.equal(same.payment_intent, paid.payment_intent, 'nothing is paid twice');
});

test('a declined card pays nothing, and the buyer may try again or go back', async (t) => {
  const { stripe } = await setUp(t);
  const session = await stripe.checkout.sessions.create(order);
  const declined = await choose(urlOf(session), 'declined');
  assert.equal(declined.status, 200);
  const text = await declined.text();
  assert.match(text, /role="alert">The card was declined/);
  assert.match(text, /Try again/);
  assert.ok(text.includes('href="http://127.0.0.1:8080/top-up?amount=1250&amp;account=x"'));
  assert.equal((await stripe.checkout.sessions.retrieve(session.id)).payment_status, 'unpaid');
  assert.equal((await choose(urlOf(session), 'accepted')).status, 303);
});

test('a session expires when it is told to or when its time has come, and can no longer be paid', async (t) => {
  const { stripe } = await setUp(t);
  const told = await stripe.checkout.sessions.create(order);
  assert.equal((await stripe.checkout.sessions.expire(told.id)).status, 'expired');
  await assert.rejects(stripe.checkout.sessions.expire(told.id), {
    statusCode: 400,
    type: 'StripeInvalidRequestError',
  });

  const brief = await stripe.checkout.sessions.create({ ...order, expires_at: Math.floor(Date.now() / 1000) + 1860 });
  const lasting = await stripe.checkout.sessions.create(order);
  t.teardown(() => mock.reset());
  mock.timers.enable({ apis: ['Date'], now: brief.expires_at * 1000 });
  for (const { id, url } of [told, brief]) {
    const page = await get(urlOf({ url }));
    assert.equal(page.status, 410);
    assert.match(await page.text(), /expired/);
    assert.equal((await choose(urlOf({ url }), 'accepted')).status, 410);
    const session = await stripe.checkout.sessions.retrieve(id);
    assert.deepEqual([session.status, session.payment_status, session.url], ['expired', 'unpaid', null]);
  }
  assert.equal((await stripe.checkout.sessions.retrieve(lasting.id)).status, 'open');
  mock.timers.setTime(lasting.expires_at * 1000);
  assert.equal((await stripe.checkout.sessions.retrieve(lasting.id)).status, 'expired');
});

test('the list is newest first, in pages, and filters by time and status', async (t) => {
  const { stripe } = await setUp(t);
  t.teardown(() => mock.reset());
  mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  const ids: string[] = [];
  for (let second = 0; second < 5; second += 1) {
    mock.timers.setTime((1_800_000_000 + second) * 1000);
    ids.unshift((await stripe.checkout.sessions.create(order)).id);
  }
  const first = await stripe.checkout.sessions.list({ limit: 2 });
  assert.deepEqual(
    first.data.map((session) => session.id),
    ids.slice(0, 2),
  );
  assert.equal(first.has_more, true);
  const last = await stripe.checkout.sessions.list({ limit: 2, starting_after: ids[2] as string });
  assert.deepEqual(
    last.data.map((session) => session.id),
    ids.slice(3),
  );
  assert.equal(last.has_more, false);

  const seen: string[] = [];
  for await (const session of stripe.checkout.sessions.list({ limit: 2 })) seen.push(session.id);
  assert.deepEqual(seen, ids);

  const recent = await stripe.checkout.sessions.list({ created: { gte: 1_800_000_003 } });
  assert.deepEqual(
    recent.data.map((session) => session.id),
    ids.slice(0, 2),
  );
  await stripe.checkout.sessions.expire(ids[1] as string);
  const expired = await stripe.checkout.sessions.list({ status: 'expired', created: { gt: 1_800_000_000 } });
  assert.deepEqual(
    expired.data.map((session) => session.id),
    [ids[1]],
  );
});

test('an Idempotency-Key gives the first answer again, and belongs to one set of parameters', async (t) => {
  const { stripe } = await setUp(t);
  const idempotencyKey = 'top-up-1';
  const answers = await Promise.all([1, 2, 3].map(() => stripe.checkout.sessions.create(order, { idempotencyKey })));
  assert.equal(new Set(answers.map((session) => session.id)).size, 1);
  assert.equal((await stripe.checkout.sessions.list()).data.length, 1);
  await assert.rejects(
    stripe.checkout.sessions.create({ ...order, client_reference_id: 'other' }, { idempotencyKey }),
    { type: 'StripeIdempotencyError', statusCode: 400 },
  );

  const refused = { idempotencyKey: 'top-up-2' };
  await assert.rejects(stripe.checkout.sessions.create({ ...order, line_items: [] }, refused), { statusCode: 400 });
  await stripe.checkout.sessions.create(order, refused);
});

test('errors have the status, type, code and parameter that the SDK knows', async (t) => {
  const { stripe, apiBase } = await setUp(t);
  await assert.rejects(stripe.checkout.sessions.retrieve('cs_test_unknown'), {
    type: 'StripeInvalidRequestError',
    statusCode: 404,
    code: 'resource_missing',
  });
  await assert.rejects(client(apiBase, 'sk_test_other').checkout.sessions.list(), {
    type: 'StripeAuthenticationError',
    statusCode: 401,
  });
  assert.equal((await get(`${apiBase}/v1/checkout/sessions`)).status, 401);
  await assert.rejects(stripe.customers.list(), { type: 'StripeInvalidRequestError', statusCode: 404 });

  const item = (price: object) => ({ ...order, line_items: [{ quantity: 1, price_data: price }] });
  const product_data = { name: 'n' };
  const faults: [object, string, string][] = [
    [{ ...order, mode: 'subscription' }, 'parameter_invalid', 'mode'],
    [{ ...order, success_url: undefined }, 'parameter_missing', 'success_url'],
    [{ ...order, success_url: 'javascript:alert(1)' }, 'url_invalid', 'success_url'],
    [{ ...order, cancel_url: '/back' }, 'url_invalid', 'cancel_url'],
    [{ ...order, colour: 'red' }, 'parameter_unknown', 'colour'],
    [{ ...order, line_items: undefined }, 'parameter_missing', 'line_items'],
    [{ ...order, expires_at: 5 }, 'parameter_invalid_integer', 'expires_at'],
    [{ ...order, metadata: { ['k'.repeat(41)]: 'v' } }, 'parameter_invalid', `metadata[${'k'.repeat(41)}]`],
    [
      item({ currency: 'usd', unit_amount: 1.5, product_data }),
      'parameter_invalid_integer',
      'line_items[0][price_data][unit_amount]',
    ],
    [item({ currency: 'usd', unit_amount: 49, product_data }), 'amount_too_small', 'line_items'],
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
  assert.deepEqual((await stripe.checkout.sessions.list()).data, []);
});

test('a malformed body is a 4xx in the same form', async (t) => {
  const { apiBase } = await setUp(t);
  const post = async (body: string, contentType: string) => {
    const headers = { authorization: `Bearer ${KEY}`, 'content-type': contentType };
    const answer = await fetch(`${apiBase}/v1/checkout/sessions`, { method: 'POST', headers, body });
    return [answer.status, ((await answer.json()) as { error: { type: string } }).error.type];
  };
  const form = FORM['content-type'];
  assert.deepEqual(await post('mode=payment&mode[x]=1', form), [400, 'invalid_request_error']);
  assert.deepEqual(await post('mode=payment&mode=payment', form), [400, 'invalid_request_error']);
  assert.deepEqual(await post('a[b=1', form), [400, 'invalid_request_error']);
  assert.deepEqual(await post(`a${'[b]'.repeat(50)}=1`, form), [400, 'invalid_request_error']);
  assert.deepEqual(await post('__proto__[mode]=payment', form), [400, 'invalid_request_error']);
  assert.deepEqual(await post('{}', 'application/json'), [415, 'invalid_request_error']);
  assert.deepEqual(await post('a'.repeat(70_000), form), [413, 'invalid_request_error']);
});
