import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { buy, form, offered, shop, shownAccount } from './shop.ts';

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
