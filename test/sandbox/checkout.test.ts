import assert from 'node:assert/strict';
import { appendFile, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { mock } from 'node:test';
import type Stripe from 'stripe';
import { test } from 'tap';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { STRIPE_KEY, stripeAt, testCheckout } from '../support/checkout.ts';
import { startScript } from '../support/child.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';
import { answersItsOwnHostOnly } from './own-host.ts';

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

const order = {
  mode: 'payment',
  line_items: [
    { quantity: 1, price_data: { currency: 'usd', unit_amount: 1250, product_data: { name: 'Speech <credits>' } } },
  ],
  success_url: 'http://127.0.0.1:8080/top-up/complete?session_id={CHECKOUT_SESSION_ID}',
  cancel_url: 'http://127.0.0.1:8080/top-up?amount=1250&account=x',
  metadata: { instance_id: 'i-1', 'odd name': 'a=b&c[d]' },
} as const satisfies Stripe.Checkout.SessionCreateParams;

const get = (url: string) => fetch(url, { redirect: 'manual' });
const choose = (url: string, card: 'accepted' | 'declined' | 'bank') =>
  fetch(url, { method: 'POST', headers: FORM, body: `card=${card}`, redirect: 'manual' });

function urlOf(session: { url: string | null }): string {
  assert.ok(session.url);
  return session.url;
}

/** Pays a session of `order`. */
async function purchase(stripe: Stripe): Promise<{ session: string; intent: string }> {
  const session = await stripe.checkout.sessions.create(order);
  assert.equal((await choose(urlOf(session), 'accepted')).status, 303);
  const { payment_intent } = await stripe.checkout.sessions.retrieve(session.id);
  return { session: session.id, intent: String(payment_intent) };
}

async function chargeOf(stripe: Stripe, intent: string): Promise<Stripe.Charge> {
  const { latest_charge } = await stripe.paymentIntents.retrieve(intent, { expand: ['latest_charge'] });
  assert.ok(latest_charge && typeof latest_charge === 'object');
  return latest_charge;
}

/** The sum of the merchant's balance transactions. */
async function balanceOf(stripe: Stripe): Promise<number> {
  let sum = 0;
  for await (const { net } of stripe.balanceTransactions.list({ limit: 100 })) sum += net;
  return sum;
}

const idsOf = ({ data }: { readonly data: readonly { readonly id: string }[] }) => data.map(({ id }) => id);

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
  const faults: [object, string, string][] = [
    [{ ...order, mode: 'subscription' }, 'parameter_invalid', 'mode'],
    [{ ...order, success_url: undefined }, 'parameter_missing', 'success_url'],
    [{ ...order, success_url: 'javascript:alert(1)' }, 'parameter_invalid', 'success_url'],
    [{ ...order, colour: 'red' }, 'parameter_unknown', 'colour'],
    [{ ...order, line_items: undefined }, 'parameter_missing', 'line_items'],
    [item({ currency: 'usd', unit_amount: 100 }), 'parameter_missing', 'line_items[0][price_data][product_data]'],
  ];
  for (const [parameters, code, param] of faults) {
    const attempt = stripe.checkout.sessions.create(parameters as Stripe.Checkout.SessionCreateParams);
    await assert.rejects(attempt, { type: 'StripeInvalidRequestError', statusCode: 400, code, param });
  }
});

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

test("R19: the page escapes text, and its policy limits forms to the merchant's origin", async (t) => {
  const { stripe } = await testCheckout(t);
  const page = await get(urlOf(await stripe.checkout.sessions.create(order)));
  t.equal(page.status, 200);
  const text = await page.text();
  for (const part of ['<h1>Pay Speechgate</h1>', '$12.50', 'Speech &lt;credits&gt;', 'Sandbox', '<html lang="en">'])
    t.ok(text.includes(part), part);
  t.notMatch(text, /<script/);
  const { headers } = page;
  const policy = headers.get('content-security-policy') ?? '';
  t.match(policy, /default-src 'none'/);
  t.match(policy, /form-action 'self' http:\/\/127\.0\.0\.1:8080(;|$)/);
  t.match(policy, /frame-ancestors 'none'/);
  const names = ['x-content-type-options', 'x-frame-options', 'referrer-policy', 'cache-control'];
  const told = names.map((name) => headers.get(name));
  t.strictSame(told, ['nosniff', 'DENY', 'no-referrer', 'no-store']);
});

test('a declined card pays nothing, and the buyer may retry or go back', async (t) => {
  const { stripe } = await testCheckout(t);
  const session = await stripe.checkout.sessions.create(order);
  const declined = await choose(urlOf(session), 'declined');
  t.equal(declined.status, 200);
  const text = await declined.text();
  t.match(text, /role="alert">The card was declined/);
  t.match(text, /Try again/);
  t.ok(text.includes('href="http://127.0.0.1:8080/top-up?amount=1250&amp;account=x"'));
  t.equal((await stripe.checkout.sessions.retrieve(session.id)).payment_status, 'unpaid');
  t.equal((await choose(urlOf(session), 'accepted')).status, 303);
  const paid = await (await get(urlOf(session))).text();
  t.match(paid, /Already paid/);
  t.ok(paid.includes(`href="http://127.0.0.1:8080/top-up/complete?session_id=${session.id}"`));
  t.notMatch(paid, /<form/);
});

test('purchases can be refunded and disputed on the dashboard', async (t) => {
  const { stripe, origin } = await testCheckout(t);
  const page = async () => (await get(`${origin}/dashboard`)).text();
  const send = (fields: Record<string, string>, headers = {}) => {
    const body = new URLSearchParams(fields);
    return fetch(`${origin}/dashboard`, { method: 'POST', headers: { ...FORM, ...headers }, body, redirect: 'manual' });
  };
  t.match(await page(), /There is no purchase yet/);
  const { session, intent } = await purchase(stripe);
  t.ok((await page()).includes(session));
  t.notMatch(await page(), /<script/);
  const refunded = await send({ id: session, action: 'refund', amount: '250' });
  t.strictSame([refunded.status, refunded.headers.get('location')], [303, '/dashboard']);
  const [refund] = (await stripe.refunds.list({ payment_intent: intent })).data;
  t.equal(refund?.amount, 250);
  t.match(await page(), /Refund of \$2\.50: succeeded/);
  await send({ id: String(refund?.id), action: 'settle', status: 'failed' });
  t.equal((await chargeOf(stripe, intent)).amount_refunded, 0);
  await send({ id: session, action: 'dispute', amount: '1250' });
  const [dispute] = (await stripe.disputes.list({ payment_intent: intent })).data;
  t.equal(await balanceOf(stripe), 0);
  const refused = await send({ id: session, action: 'refund' });
  t.equal(refused.status, 400);
  t.match(await refused.text(), /has been charged back/);
  await send({ id: String(dispute?.id), action: 'decide', status: 'won' });
  t.match(await page(), /Dispute of \$12\.50: won/);
  t.equal(await balanceOf(stripe), 1250);
  t.equal((await send({ id: session, action: 'refund' }, { 'sec-fetch-site': 'cross-site' })).status, 403);
  t.equal((await send({ id: 'cs_none', action: 'refund' })).status, 404);
  t.strictSame([(await send({ id: session, action: 'steal' })).status, await balanceOf(stripe)], [400, 1250]);
});

test('a bank payment is pending until it arrives or is refused on the dashboard', async (t) => {
  const { stripe, origin } = await testCheckout(t);
  const pages: [end: string, status: string, title: RegExp, cents: number][] = [
    ['refused', 'unpaid', /Not paid/, 0],
    ['arrived', 'paid', /Already paid/, 1250],
  ];
  for (const [end, payment_status, title, cents] of pages) {
    const session = await stripe.checkout.sessions.create(order);
    t.equal((await choose(urlOf(session), 'bank')).status, 303);
    t.match(await (await get(urlOf(session))).text(), /On its way/);
    t.match(await (await get(`${origin}/dashboard`)).text(), new RegExp(`on its way</dt><dd>${session.id}`));
    const body = new URLSearchParams({ id: session.id, action: 'bank', status: end });
    t.equal((await fetch(`${origin}/dashboard`, { method: 'POST', body, redirect: 'manual' })).status, 303);
    t.equal((await stripe.checkout.sessions.retrieve(session.id)).payment_status, payment_status);
    t.match(await (await get(urlOf(session))).text(), title);
    t.equal(await balanceOf(stripe), cents);
  }
});

test('confirmed sessions survive a kill, and the address stays the same', async (t) => {
  const dataDir = await sandboxFolder(t);
  const options = JSON.stringify({ dataDir, secretKey: STRIPE_KEY });
  const child = startScript(
    t,
    { startCheckout: 'src/sandbox/checkout/checkout-server.ts' },
    `console.log((await startCheckout(${options})).origin);`,
  );
  const [origin] = await child.printed(/http:\S+/);
  const stripe = stripeAt(origin);
  const session = await stripe.checkout.sessions.create(order, { idempotencyKey: 'once' });
  const other = await stripe.checkout.sessions.create(order);
  t.equal((await choose(urlOf(session), 'accepted')).status, 303);
  await child.stop('SIGKILL');
  t.equal((await testCheckout(t, dataDir)).origin, origin);
  t.equal((await stripe.checkout.sessions.retrieve(session.id)).payment_status, 'paid');
  t.equal((await stripe.checkout.sessions.retrieve(other.id)).status, 'open');
  t.equal((await stripe.checkout.sessions.create(order, { idempotencyKey: 'once' })).id, session.id);
  t.equal((await stat(join(dataDir, 'checkout.json'))).mode & 0o777, 0o600);
});

test('payments, refunds and disputes survive a restart after a partial write', async (t) => {
  const dataDir = await sandboxFolder(t);
  const first = await testCheckout(t, dataDir);
  const { session, intent } = await purchase(first.stripe);
  const refund = await first.refund({ session, amountCents: 300, status: 'pending' });
  const dispute = await first.openDispute({ session, amountCents: 100 });
  const balance = (await first.stripe.balanceTransactions.list()).data;
  await first.close();
  await appendFile(join(dataDir, 'checkout.json'), '[{"id":"re_cut');
  const second = await testCheckout(t, dataDir);
  t.equal((await second.stripe.refunds.retrieve(refund.id)).status, 'pending');
  t.equal((await second.stripe.disputes.retrieve(dispute.id)).amount, 100);
  t.equal((await chargeOf(second.stripe, intent)).amount_refunded, 300);
  t.strictSame((await second.stripe.balanceTransactions.list()).data, balance);
  await second.settleRefund(refund.id, 'failed');
  await second.close();
  const third = await testCheckout(t, dataDir);
  t.equal((await third.stripe.refunds.retrieve(refund.id)).status, 'failed');
  t.equal(await balanceOf(third.stripe), 1150);
  await third.close();
  const file = join(dataDir, 'checkout.json');
  const whole = await readFile(file, 'utf8');
  for (const damaged of [whole.replace('{', ''), whole.slice(0, 20)]) {
    await writeFile(file, damaged);
    await t.rejects(startCheckout({ dataDir, secretKey: STRIPE_KEY }), /checkout\.json, is damaged/);
  }
});

test('checkout and dashboard answer 421 to a foreign host name', async (t) => {
  const { origin } = await testCheckout(t);
  for (const path of ['/dashboard', '/v1/checkout/sessions', '/nowhere']) await answersItsOwnHostOnly(origin + path);
});
