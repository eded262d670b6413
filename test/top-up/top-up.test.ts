import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { type TestCheckout, testCheckout } from '../support/checkout.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';

async function shop(t: Test, env: Record<string, string> = {}) {
  const checkout = await testCheckout(t);
  return { checkout, gateway: await startGateway(t, { ...checkout.env, ...env }) };
}

const form = (fields: Record<string, string>) => ({
  method: 'POST',
  headers: { 'content-type': 'application/x-www-form-urlencoded' },
  body: new URLSearchParams(fields).toString(),
});

/** Opens a checkout, pays it, and tells the path that the buyer returns to. */
async function buy(gateway: Gateway, checkout: TestCheckout, fields: Record<string, string> = {}): Promise<string> {
  const opened = await gateway.call('/top-up', form(fields));
  assert.equal(opened.status, 303);
  const back = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
  return `${back.pathname}${back.search}`;
}

const shownAccount = (page: string): string => /value="([0-9a-f-]{36})" readonly/.exec(page)?.[1] ?? '';

/** The amounts that a launcher offers, the chosen one with a star. */
const offered = (page: string): string =>
  [...page.matchAll(/<input type="radio" name="amount" [^>]*value="(\w+)"( checked)?>/g)]
    .map(([, value, checked]) => `${value}${checked ? '*' : ''}`)
    .join(' ');

const links = (page: string): string[] => [...page.matchAll(/<a [^>]*href="([^"]*)"/g)].map(([, href]) => href ?? '');

const asBrowser = (fields: Record<string, string>) => {
  const request = form(fields);
  return { ...request, headers: { ...request.headers, accept: 'text/html,*/*' } };
};

test('a purchase makes an account, credits it once, and is already credited on a reload', async (t) => {
  const { gateway, checkout } = await shop(t);
  const back = await buy(gateway, checkout, { amount: '700', challengeId: 'challenge-1' });
  const first = await gateway.call(back);
  assert.equal(first.status, 200);
  assert.match(first.text, /Credit added/);
  assert.match(first.text, /\$7\.00 was added/);
  assert.match(first.text, /<dd class="amount">\$7\.00<\/dd>/);
  assert.equal(first.headers.get('cache-control'), 'private, no-store');
  const account = shownAccount(first.text);
  const again = await gateway.call(back);
  assert.match(again.text, /Already credited/);
  assert.equal(shownAccount(again.text), account);
  assert.equal(await gateway.balance(account), 7_000_000n);
  const [session] = (await checkout.stripe.checkout.sessions.list()).data;
  assert.equal(session?.metadata?.challenge_id, 'challenge-1', 'R11: the challenge is carried through the checkout');
  assert.deepEqual(await audit(gateway.db), []);
});

test('R16: twenty returns at once credit once', async (t) => {
  const { gateway, checkout } = await shop(t);
  const back = await buy(gateway, checkout);
  const pages = await Promise.all(Array.from({ length: 20 }, () => gateway.call(back)));
  assert.equal(pages.filter((page) => /Credit added/.test(page.text)).length, 1);
  assert.equal(pages.filter((page) => /Already credited/.test(page.text)).length, 19);
  assert.equal(await gateway.balance(shownAccount(pages[0]?.text ?? '')), 5_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
});

test('an existing account is topped up', async (t) => {
  const { gateway, checkout } = await shop(t);
  const account = await gateway.fund(500);
  await gateway.call(await buy(gateway, checkout, { amount: '500', accountId: ` ${account} ` }));
  assert.equal(await gateway.balance(account), 10_000_000n);
});

test('R14: the amount is clamped, and shown before paying', async (t) => {
  const { gateway, checkout } = await shop(t, { TOP_UP_MAX_CENTS: '2000' });
  const cases: [string | undefined, number][] = [
    [undefined, 500],
    ['', 500],
    ['499', 500],
    ['500', 500],
    ['501', 501],
    ['7.5', 500],
    ['-900', 500],
    ['1e3', 500],
    ['abc', 500],
    ['2000', 2000],
    ['2001', 2000],
    ['9'.repeat(400), 2000],
  ];
  for (const [amount, cents] of cases) {
    const query = amount === undefined ? '' : `?amount=${encodeURIComponent(amount)}`;
    const page = await gateway.call(`/top-up${query}`);
    assert.match(offered(page.text), new RegExp(`\\b${cents}\\*`), `amount ${amount}`);
    assert.ok(page.text.includes(`>$${(cents / 100).toFixed(2)}<`), `amount ${amount}`);
    await gateway.call('/top-up', form(amount === undefined ? {} : { amount }));
    const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
    assert.equal(session?.amount_total, cents, `amount ${amount}`);
  }
});

test('the launcher offers four amounts, the one that was asked for, and an own one, up to the maximum', async (t) => {
  const { gateway } = await shop(t, { TOP_UP_MAX_CENTS: '150000' });
  const cases: [query: string, choices: string][] = [
    ['', '500* 1000 2000 5000 own'],
    ['?amount=2000', '500 1000 2000* 5000 own'],
    ['?amount=1234', '500 1000 1234* 2000 5000 own'],
    ['?amount=100000', '500 1000 2000 5000 100000* own'],
  ];
  for (const [query, choices] of cases) {
    assert.equal(offered((await gateway.call(`/top-up${query}`)).text), choices, query);
  }
  assert.match((await gateway.call('/top-up?amount=100000')).text, />\$1,000\.00</);
  const small = await startGateway(t, { TOP_UP_MAX_CENTS: '1500' });
  assert.equal(offered((await small.call('/top-up?amount=5000')).text), '500 1000 1500* own');
  const smallest = await startGateway(t, { TOP_UP_MAX_CENTS: '500' });
  assert.equal(offered((await smallest.call('/top-up')).text), '500*', 'there is no other amount');
  const refused = await smallest.call('/top-up', asBrowser({ amount: 'own', ownAmount: '7' }));
  assert.match(refused.text, /at most \$5\.00/);
});

test('an own amount is bought as it was typed', async (t) => {
  const { gateway, checkout } = await shop(t);
  const cases: [typed: string, cents: number][] = [
    ['5', 500],
    ['12.5', 1250],
    ['12.50', 1250],
    [' $12.34 ', 1234],
    ['$ 007', 700],
    ['19.99', 1999],
    ['1000.00', 100_000],
  ];
  for (const [ownAmount, cents] of cases) {
    assert.equal((await gateway.call('/top-up', asBrowser({ amount: 'own', ownAmount }))).status, 303, ownAmount);
    const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
    assert.equal(session?.amount_total, cents, ownAmount);
  }
  await gateway.call('/top-up', form({ amount: '2000', ownAmount: '7' }));
  const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
  assert.equal(session?.amount_total, 2000, 'an own amount that is not chosen is not read');
  await gateway.call('/top-up', form({ amount: 'own' }));
  const [without] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
  assert.equal(without?.amount_total, 500, 'R14: without ownAmount it is an amount like any that is no number');
});

test('an own amount that can not be bought is asked for again, with what was typed, and never changed', async (t) => {
  const { gateway, checkout } = await shop(t, { TOP_UP_MAX_CENTS: '150000', TOP_UP_RATE_LIMIT_MAX: '1' });
  const accountId = await gateway.fund(500);
  const cases: [typed: string, rule: string, message: RegExp][] = [
    ['', 'format', /Type an amount in US dollars, such as 12\.50\./],
    ['twelve', 'format', /in US dollars, such as 12\.50\./],
    ['12,50', 'format', /such as 12\.50/],
    ['1,000', 'format', /such as 12\.50/],
    ['12.345', 'format', /such as 12\.50/],
    ['-20', 'format', /such as 12\.50/],
    ['1e3', 'format', /such as 12\.50/],
    ['"><b>', 'format', /such as 12\.50/],
    ['4.99', 'minimum', /at least \$5\.00/],
    ['0', 'minimum', /at least \$5\.00/],
    ['1500.01', 'maximum', /at most \$1,500\.00/],
    ['9'.repeat(99), 'maximum', /at most \$1,500\.00/],
  ];
  for (const [ownAmount, rule, message] of cases) {
    const fields = { amount: 'own', ownAmount, accountId, challengeId: 'from-a-402' };
    const page = await gateway.call('/top-up', asBrowser(fields));
    assert.equal(page.status, 400, ownAmount);
    assert.equal(offered(page.text), '500 1000 2000 5000 own*', ownAmount);
    assert.match(page.text, message, ownAmount);
    const kept = ownAmount.replace('"><b>', '&quot;&gt;&lt;b&gt;');
    assert.ok(page.text.includes(`name="ownAmount" value="${kept}"`), ownAmount);
    assert.ok(page.text.includes(`name="accountId" value="${accountId}"`));
    assert.ok(page.text.includes('name="challengeId" value="from-a-402"'));
    assert.equal(page.headers.get('cache-control'), 'private, no-store');
    const policy = page.headers.get('content-security-policy') ?? '';
    assert.ok(policy.includes(`form-action 'self' ${checkout.origin}`), 'R19: it can be corrected right there');

    const structured = await gateway.call('/top-up', form(fields));
    assert.equal(structured.status, 400, ownAmount);
    assert.equal(structured.json.error.code, 'INVALID_REQUEST');
    assert.match(structured.json.error.message, message);
    assert.equal(structured.json.error.details.field, 'ownAmount');
    assert.equal(structured.json.error.details.rule, rule, ownAmount);
  }
  assert.equal(
    (await gateway.call('/top-up', form({ amount: 'own', ownAmount: '5' }))).status,
    303,
    'none has counted',
  );
  assert.equal((await checkout.stripe.checkout.sessions.list()).data.length, 1);
});

test('an account that does not exist is said before paying, with ways on', async (t) => {
  const { gateway } = await shop(t);
  const unknown = '6b1f0f9e-0000-4000-8000-000000000000';
  const known = await gateway.fund(500);
  const asked = (account: string) => `/top-up?amount=1234&account=${encodeURIComponent(account)}&challenge=a-1`;
  const get = await gateway.call(asked(unknown));
  assert.equal(get.status, 200);
  const post = await gateway.call('/top-up', asBrowser({ amount: '1234', accountId: unknown, challengeId: 'a-1' }));
  assert.equal(post.status, 400);
  for (const page of [get, post]) {
    assert.match(page.text, /There is no account with this id/);
    assert.doesNotMatch(page.text, /method="post"/, 'nothing is bought by mistake');
    assert.match(page.text, new RegExp(`name="account" value="${unknown}"`), 'it can be corrected');
    assert.match(page.text, /name="amount" value="1234"/);
    assert.match(page.text, /name="challenge" value="a-1"/);
    assert.deepEqual(links(page.text), ['/top-up?amount=1234&amp;challenge=a-1'], 'or a new one be bought for');
    assert.equal(page.headers.get('cache-control'), 'private, no-store');
  }
  assert.match((await gateway.call(asked('"><b>not a uuid'))).text, /value="&quot;&gt;&lt;b&gt;not a uuid"/);
  const launcher = await gateway.call(asked(` ${known} `));
  assert.doesNotMatch(launcher.text, /There is no account/);
  assert.match(launcher.text, new RegExp(`name="accountId" value="${known}"`));
});

test('who leaves the checkout comes back to the same purchase, and reads that nothing was charged', async (t) => {
  const { gateway, checkout } = await shop(t);
  const accountId = await gateway.fund(500);
  await gateway.call('/top-up', asBrowser({ amount: 'own', ownAmount: '12.34', accountId, challengeId: 'a-1' }));
  const [session] = (await checkout.stripe.checkout.sessions.list()).data;
  const back = new URL(session?.cancel_url ?? '');
  const page = await gateway.call(`${back.pathname}${back.search}`);
  assert.equal(page.status, 200);
  assert.match(page.text, /Nothing was charged/);
  assert.equal(offered(page.text), '500 1000 1234* 2000 5000 own');
  assert.match(page.text, new RegExp(`name="accountId" value="${accountId}"`));
  assert.match(page.text, /name="challengeId" value="a-1"/);
  assert.doesNotMatch((await gateway.call('/top-up?canceled=%20')).text, /Nothing was charged/);
});

test('a completed purchase shows whole cents as such and parts of a cent as they are, and what to do with the id', async (t) => {
  const { gateway, checkout } = await shop(t);
  const account = await gateway.fund(500);
  const balances: [bigint, string][] = [
    [14_999_028n, '$19.999028'],
    [15_000_000n, '$20.00'],
    [14_500_000n, '$19.50'],
    [14_999_500n, '$19.9995'],
    [1_000_000_000_000_001n, '$1,000,000,005.000001'],
  ];
  for (const [before, shown] of balances) {
    await gateway.db.updateTable('account').set({ balance_micro_usd: before }).where('id', '=', account).execute();
    const { text } = await gateway.call(await buy(gateway, checkout, { amount: '500', accountId: account }));
    assert.ok(text.includes(`<dd class="amount">${shown}</dd>`), shown);
  }
  const { text } = await gateway.call(await buy(gateway, checkout, { amount: '2000' }));
  assert.match(text, /\$20\.00 was added/);
  const id = shownAccount(text);
  assert.match(text, /<label for="account">Your account id<\/label>\n<input [^>]*id="account"/);
  assert.ok(links(text).includes(`/top-up?account=${id}`));
  assert.doesNotMatch(text, /recover/);
  assert.match(text, /this page's address shows it again/);
  assert.match(text, /operator [^.]*receipt that the card processor sent you/);
  const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
  assert.equal(session?.metadata?.account_id, id, 'which is where the operator finds it');
});

test('each page that is not the launcher has a link on', async (t) => {
  const { gateway, checkout } = await shop(t, { TOP_UP_RATE_LIMIT_MAX: '1' });
  const off = await startGateway(t, { STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' });
  const down = await startGateway(t);
  const html = { headers: { accept: 'text/html,*/*' } };
  await gateway.call('/top-up', form({}));
  const [unpaid] = (await checkout.stripe.checkout.sessions.list()).data;
  const back = '/top-up';
  const pages: [name: string, status: number, page: Promise<{ status: number; text: string }>, ways: string[]][] = [
    ['unpaid', 402, gateway.call(`/top-up/complete?session_id=${unpaid?.id}`), ['', back]],
    ['unknown session', 502, gateway.call('/top-up/complete?session_id=cs_test_unknown'), [back]],
    ['no session', 400, gateway.call('/top-up/complete'), [back]],
    ['two sessions', 400, gateway.call('/top-up/complete?session_id=a&session_id=b'), [back]],
    ['processor down', 502, down.call('/top-up/complete?session_id=cs_test_1'), ['', back]],
    ['bad query', 400, gateway.call('/top-up?amount=1&amount=2', html), [back]],
    ['bad form', 400, gateway.call('/top-up', asBrowser({ challengeId: 'a'.repeat(101) })), [back]],
    ['too many', 429, gateway.call('/top-up', asBrowser({})), [back]],
    ['card off', 200, off.call('/top-up'), ['/docs']],
    ['card off, returning', 503, off.call('/top-up/complete?session_id=cs_test_1'), [back]],
  ];
  for (const [name, status, answer, ways] of pages) {
    const page = await answer;
    assert.equal(page.status, status, name);
    assert.deepEqual(links(page.text), ways, name);
  }
});

test('R15: an account that does not exist is refused before any session', async (t) => {
  const { gateway, checkout } = await shop(t);
  const accountId = '6b1f0f9e-0000-4000-8000-000000000000';
  const structured = await gateway.call('/top-up', form({ accountId }));
  assert.equal(structured.status, 400);
  assert.equal(structured.json.error.code, 'INVALID_REQUEST');
  assert.equal(structured.json.error.details.field, 'accountId');
  const request = form({ accountId });
  const page = await gateway.call('/top-up', { ...request, headers: { ...request.headers, accept: 'text/html,*/*' } });
  assert.equal(page.status, 400);
  assert.match(page.headers.get('content-type') ?? '', /text\/html/);
  assert.equal((await checkout.stripe.checkout.sessions.list()).data.length, 0);
});

test('R15: a page is for who prefers HTML to JSON, by the quality values of Accept', async (t) => {
  const { gateway } = await shop(t);
  const cases: [accept: string | undefined, isPage: boolean][] = [
    [undefined, false],
    ['*/*', false],
    ['text/*', false],
    ['application/json', false],
    ['text/html', true],
    ['Text/HTML; charset=utf-8', true],
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', true],
    ['text/html,*/*', true],
    ['text/html, application/json', true],
    ['application/json, text/html', false],
    ['application/json;q=0.5, text/html', true],
    ['text/html;q=0.5, application/json', false],
    ['text/html;q=0.5, application/json;q=0.6', false],
    ['text/html;q=0.7, application/json;Q=0.6', true],
    ['text/html;q=0.5, */*', false],
    ['text/html;q=0.5, application/*;q=0.9', false],
    ['text/html;q=0', false],
    ['text/html;q=0, */*', false],
    ['text/html;q=0.1, application/json;q=0', true],
    ['text/html;q=nonsense', false],
    ['text/html;q=nonsense, application/json;q=0.9', false],
    ['text/html;q=', false],
    ['text/html;q', false],
    ['text/html;q=0.1, application/json;q=nonsense', true],
  ];
  for (const [accept, isPage] of cases) {
    const request = form({ accountId: 'nobody' });
    const headers = { ...request.headers, ...(accept !== undefined && { accept }) };
    const reply = await gateway.call('/top-up', { ...request, headers });
    assert.equal(reply.status, 400);
    const type = isPage ? 'text/html' : 'application/json';
    assert.equal(reply.headers.get('content-type')?.split(';')[0], type, accept);
  }
});

test('forms that can not be read are refused', async (t) => {
  const { gateway } = await shop(t);
  const type = { 'content-type': 'application/x-www-form-urlencoded' };
  const cases: [object, number][] = [
    [{ method: 'POST', json: {} }, 415],
    [{ method: 'POST', headers: type, body: 'amount=%zz' }, 400],
    [{ method: 'POST', headers: type, body: 'amount=500&amount=900' }, 400],
    [{ method: 'POST', headers: type, body: `accountId=${'a'.repeat(101)}` }, 400],
  ];
  for (const [request, status] of cases) assert.equal((await gateway.call('/top-up', request)).status, status);
  assert.equal((await gateway.call('/top-up', { method: 'POST' })).status, 303, 'the form is optional');
});

test('a challenge that is no well-formed text is refused, and makes no row and no session', async (t) => {
  const { gateway, checkout } = await shop(t);
  const type = { 'content-type': 'application/x-www-form-urlencoded' };
  // U+0000, and two lone surrogates as some encoders write them.
  for (const text of ['a%00b', '%00', '%ED%A0%80', '%ED%BF%BF']) {
    const posted = await gateway.call('/top-up', { method: 'POST', headers: type, body: `challengeId=${text}` });
    assert.equal(posted.status, 400, text);
    assert.equal(posted.json.error.code, 'INVALID_REQUEST');
    const shown = await gateway.call(`/top-up?challenge=${text}`);
    assert.equal(shown.status, 400, text);
    assert.equal(shown.json.error.code, 'INVALID_REQUEST');
  }
  const body = 'challengeId=%00';
  const page = await gateway.call('/top-up', { method: 'POST', headers: { ...type, accept: 'text/html' }, body });
  assert.equal(page.status, 400);
  assert.match(page.headers.get('content-type') ?? '', /text\/html/);
  assert.equal((await gateway.db.selectFrom('top_up').select('id').execute()).length, 0);
  assert.equal((await checkout.stripe.checkout.sessions.list()).data.length, 0);
});

test('an unpaid session is 402 and credits nothing', async (t) => {
  const { gateway, checkout } = await shop(t);
  await gateway.call('/top-up', form({}));
  const [session] = (await checkout.stripe.checkout.sessions.list()).data;
  const page = await gateway.call(`/top-up/complete?session_id=${session?.id}`);
  assert.equal(page.status, 402);
  await checkout.stripe.checkout.sessions.expire(session?.id ?? '');
  assert.equal((await gateway.call(`/top-up/complete?session_id=${session?.id}`)).status, 402);
  assert.equal((await gateway.db.selectFrom('account').select('id').where('kind', '=', 'card').execute()).length, 0);
});

test('R16, R54: unknown, foreign and other-currency sessions are 502 and credit nothing', async (t) => {
  const { gateway, checkout } = await shop(t);
  const other = await startGateway(t, checkout.env);
  // Test databases are copies of one template, and a copy has the instance id of its original.
  await other.db.updateTable('instance').set({ id: randomUUID() }).execute();
  const instance = await gateway.db.selectFrom('instance').select('id').executeTakeFirstOrThrow();
  const open = async (currency: string, metadata: Record<string, string>) => {
    const session = await checkout.stripe.checkout.sessions.create({
      mode: 'payment',
      success_url: 'http://speechgate.test/top-up/complete?session_id={CHECKOUT_SESSION_ID}',
      line_items: [{ quantity: 1, price_data: { currency, unit_amount: 900, product_data: { name: 'x' } } }],
      metadata,
    });
    await checkout.pay(session.url ?? '');
    return session.id;
  };
  const ours = {
    instance_id: instance.id,
    top_up_id: '7b1f0f9e-0000-4000-8000-000000000000',
    account_id: '8b1f0f9e-0000-4000-8000-000000000000',
  };
  const sessions: [string, string][] = [
    ['unknown', 'cs_test_unknown'],
    ['no id at all', '../../v1/customers'],
    ['of another service', new URLSearchParams((await buy(other, checkout)).split('?')[1]).get('session_id') ?? ''],
    ['without our metadata', await open('usd', {})],
    ['in another currency', await open('eur', ours)],
    ['with a broken account', await open('usd', { ...ours, account_id: 'x' })],
  ];
  for (const [name, id] of sessions) {
    const page = await gateway.call(`/top-up/complete?session_id=${encodeURIComponent(id)}`);
    assert.equal(page.status, 502, name);
    assert.match(page.headers.get('content-type') ?? '', /text\/html/);
  }
  assert.equal((await gateway.db.selectFrom('transfer').select('id').execute()).length, 0);
  assert.equal((await gateway.call('/top-up/complete')).status, 400);
  assert.equal((await gateway.call('/top-up/complete?session_id=')).status, 400);
});

test('R20: the status of an account', async (t) => {
  const { gateway } = await shop(t);
  const account = await gateway.fund(500);
  const active = await gateway.call(`/top-up/status?account=${account}`);
  assert.deepEqual(active.json, {
    accountId: account,
    balanceMicroUsd: 5000000,
    balanceUsd: '5.000000',
    currency: 'USD',
    status: 'active',
    links: { credits: `http://speechgate.test/credits/${account}` },
  });
  const unknown = await gateway.call('/top-up/status?account=nobody');
  assert.equal(unknown.status, 404);
  assert.equal(unknown.json.status, 'not_found');
  assert.equal(unknown.json.balanceMicroUsd, 0);
  for (const query of ['', '?account=', '?account=%20%20', `?account=${'a'.repeat(101)}`, '?account=a&account=b']) {
    assert.equal((await gateway.call(`/top-up/status${query}`)).status, 400, query);
  }
});

test('processor errors are 502, and nothing is lost', async (t) => {
  let answer: { status: number; body: string } = { status: 500, body: '' };
  const processor = createServer((_request, response) => {
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.body);
  }).listen(0, '127.0.0.1');
  await once(processor, 'listening');
  t.teardown(() => processor.close());
  const origin = `http://127.0.0.1:${(processor.address() as AddressInfo).port}`;
  const gateway = await startGateway(t, { STRIPE_API_BASE: origin, CHECKOUT_ORIGIN: origin });
  const answers = [
    { status: 500, body: '{"error":{"type":"api_error","message":"secret detail"}}' },
    { status: 401, body: '{"error":{"type":"invalid_request_error","message":"secret detail"}}' },
    { status: 404, body: '{"nothing":"secret detail"}' },
    { status: 200, body: '{"id":"cs_test_1","url":null}' },
    { status: 200, body: 'secret detail' },
    { status: 200, body: '{}' },
  ];
  for (answer of answers) {
    const reply = await gateway.call('/top-up', form({}));
    assert.equal(reply.status, 502, answer.body);
    assert.equal(reply.json.error.code, 'PAYMENT_ERROR');
    assert.doesNotMatch(reply.text, /secret detail/);
    const page = await gateway.call('/top-up/complete?session_id=cs_test_1');
    assert.equal(page.status, 502, answer.body);
    assert.doesNotMatch(page.text, /secret detail/);
  }
});

test('a checkout is gone to only by http(s) as CHECKOUT_ORIGIN has it; any other address is 502', async (t) => {
  let session: object = {};
  const processor = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(session));
  }).listen(0, '127.0.0.1');
  await once(processor, 'listening');
  t.teardown(() => processor.close());
  const STRIPE_API_BASE = `http://127.0.0.1:${(processor.address() as AddressInfo).port}`;
  const gateways = {
    'http:': await startGateway(t, { STRIPE_API_BASE, CHECKOUT_ORIGIN: 'http://checkout.test' }),
    'https:': await startGateway(t, { STRIPE_API_BASE, CHECKOUT_ORIGIN: 'https://checkout.test' }),
  };
  const cases: [url: string, protocol: keyof typeof gateways, location?: string][] = [
    ['javascript:alert(1)', 'https:'],
    ['JavaScript:alert(1)', 'http:'],
    ['data:text/html,pay', 'http:'],
    ['file:///etc/passwd', 'https:'],
    ['/pay', 'http:'],
    ['http://checkout.test/pay', 'https:'],
    ['http://checkout.test/pay', 'http:', 'http://checkout.test/pay'],
    ['https://checkout.test/pay', 'http:', 'https://checkout.test/pay'],
    ['https://checkout.test/pay#key', 'https:', 'https://checkout.test/pay#key'],
    ['https://checkout.test/a\nb', 'https:', 'https://checkout.test/ab'],
  ];
  for (const [index, [url, protocol, location]] of cases.entries()) {
    session = { id: `cs_test_${index}`, url };
    const reply = await gateways[protocol].call('/top-up', form({}));
    assert.equal(reply.status, location === undefined ? 502 : 303, `${url} for ${protocol}`);
    assert.equal(reply.headers.get('location'), location ?? null);
    if (location === undefined) assert.equal(reply.json.error.code, 'PAYMENT_ERROR');
  }
  session = { id: 'cs_\0', url: 'https://checkout.test/pay' };
  assert.equal(
    (await gateways['https:'].call('/top-up', form({}))).status,
    502,
    'an id that the buyer can not return with',
  );
});

test('pages escape what they are given, and allow nothing but their style and form', async (t) => {
  const { gateway, checkout } = await shop(t);
  const evil = '"><script>alert(1)</script>';
  const page = await gateway.call(`/top-up?account=${encodeURIComponent(evil)}&challenge=${encodeURIComponent(evil)}`);
  assert.equal(page.status, 200);
  assert.doesNotMatch(page.text, /<script/);
  const policy = page.headers.get('content-security-policy') ?? '';
  assert.match(policy, /default-src 'none'; style-src 'sha256-[^']+'; form-action 'self' http:\/\/127\.0\.0\.1:\d+;/);
  assert.ok(policy.includes(checkout.origin), 'R19: the checkout may be reached from the form');
  for (const query of [
    `account=${'a'.repeat(101)}`,
    `challenge=${'a'.repeat(101)}`,
    'amount=%zz',
    'amount=1&amount=2',
  ]) {
    assert.equal((await gateway.call(`/top-up?${query}`)).status, 400, query);
  }
});

test('an address begins 10 purchases a minute: the next ones are 429, a page for browsers, and make no row and no session', async (t) => {
  const { gateway, checkout } = await shop(t, { TOP_UP_RATE_LIMIT_MAX: '', RATE_LIMIT_MAX: '1' });
  const statuses = [];
  for (let count = 0; count < 12; count++) statuses.push((await gateway.call('/top-up', form({}))).status);
  assert.deepEqual(statuses, [...Array.from({ length: 10 }, () => 303), 429, 429]);
  const refused = await gateway.call('/top-up', form({}));
  assert.equal(refused.json.error.code, 'RATE_LIMITED');
  assert.equal(refused.headers.get('x-ratelimit-policy'), '10;w=60');
  assert.equal(refused.headers.get('x-ratelimit-scope'), 'top-up');
  assert.ok(Number(refused.headers.get('retry-after')) > 0);
  const request = form({});
  const page = await gateway.call('/top-up', { ...request, headers: { ...request.headers, accept: 'text/html,*/*' } });
  assert.equal(page.status, 429);
  assert.match(page.headers.get('content-type') ?? '', /text\/html/);
  assert.equal(page.headers.get('x-ratelimit-scope'), 'top-up');
  assert.match(
    page.text,
    new RegExp(`Nothing was charged; try again in ${page.headers.get('retry-after')} seconds?\\.`),
  );
  assert.equal((await gateway.db.selectFrom('top_up').select('id').execute()).length, 10);
  assert.equal((await checkout.stripe.checkout.sessions.list({ limit: 100 })).data.length, 10);
  assert.equal((await gateway.call('/top-up')).status, 200, 'the page itself is not counted');
});
