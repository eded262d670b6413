import { test } from 'tap';
import { testCheckout } from '../support/checkout.ts';
import { balanceOf, chargeOf, choose, FORM, get, order, purchase, urlOf } from './checkout-client.ts';

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

test('an unknown payment, an invalid choice and a malformed address get an error page', async (t) => {
  const { stripe, origin } = await testCheckout(t);
  const url = urlOf(await stripe.checkout.sessions.create(order));
  const cases: [Promise<Response>, number, RegExp?][] = [
    [get(`${origin}/c/pay/cs_test_unknown`), 404],
    [choose(`${origin}/c/pay/cs_test_unknown`, 'accepted'), 404],
    [get(`${origin}/`), 404],
    [fetch(url, { method: 'POST', headers: FORM, body: 'card=stolen' }), 400, /href="">Back to the payment<\/a>/],
    [fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' }), 415, /href="">Back/],
    [get(`${origin}/c/pay/%zz`), 400],
  ];
  for (const [attempt, status, text = /<main>/] of cases) {
    const answer = await attempt;
    t.equal(answer.status, status);
    t.match(answer.headers.get('content-type') ?? '', /^text\/html/);
    t.match(answer.headers.get('content-security-policy') ?? '', /default-src 'none'/);
    t.match(await answer.text(), text);
  }
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
