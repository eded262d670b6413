import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../../src/ledger/audit.ts';
import { startGateway } from '../../support/gateway.ts';
import { buy, form, links, offered, shop, shownAccount } from './shop.ts';

test('a purchase opens an account and credits it once, also after a reload', async (t) => {
  const { gateway, checkout } = await shop(t);
  const back = await buy(gateway, checkout, { amount: '700', challengeId: 'challenge-1' });
  const first = await gateway.call(back);
  t.equal(first.status, 200);
  t.match(first.text, /Credit added/);
  t.match(first.text, /\$7\.00 was added/);
  t.match(first.text, /<dd class="amount">\$7\.00<\/dd>/);
  t.equal(first.headers.get('cache-control'), 'private, no-store');
  const account = shownAccount(first.text);
  const again = await gateway.call(back);
  t.match(again.text, /Credit added/);
  t.match(again.text, /\$7\.00 was already added\. Opening this page again adds nothing/);
  t.equal(shownAccount(again.text), account);
  t.equal(await gateway.balance(account), 7_000_000n);
  const [session] = (await checkout.stripe.checkout.sessions.list()).data;
  t.equal(session?.metadata?.challenge_id, 'challenge-1', 'R11: the challenge is carried through the checkout');
  t.strictSame(await audit(gateway.db), []);
});

test('an existing account is topped up, also with spaces around its id', async (t) => {
  const { gateway, checkout } = await shop(t);
  const account = await gateway.fund(500);
  await gateway.call(await buy(gateway, checkout, { amount: '500', accountId: ` ${account} ` }));
  t.equal(await gateway.balance(account), 10_000_000n);
});

test('R14: the amount is clamped and shown before payment', async (t) => {
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
    t.match(offered(page.text), new RegExp(`\\b${cents}\\*`), `amount ${amount}`);
    t.ok(page.text.includes(`>$${(cents / 100).toFixed(2)}<`), `amount ${amount}`);
    await gateway.call('/top-up', form(amount === undefined ? {} : { amount }));
    const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
    t.equal(session?.amount_total, cents, `amount ${amount}`);
  }
});

test('R15: Accept decides between an HTML page and JSON by quality values', async (t) => {
  const { gateway } = await shop(t);
  const cases: [accept: string | undefined, isPage: boolean][] = [
    [undefined, false],
    ['*/*', false],
    ['application/json', false],
    ['Text/HTML; charset=utf-8', true],
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', true],
    ['application/json, text/html', false],
    ['application/json;q=0.5, text/html', true],
    ['text/html;q=0.5, application/json;Q=0.6', false],
    ['text/html;q=0.5, application/*;q=0.9', false],
    ['text/html;q=0, */*', false],
    ['text/html;q=0.1, application/json;q=0', true],
    ['text/html;q=nonsense', false],
    ['text/html;q=0.1, application/json;q=nonsense', true],
  ];
  for (const [accept, isPage] of cases) {
    const request = form({ accountId: 'nobody' });
    const headers = { ...request.headers, ...(accept !== undefined && { accept }) };
    const reply = await gateway.call('/top-up', { ...request, headers });
    t.equal(reply.status, 400);
    const type = isPage ? 'text/html' : 'application/json';
    assert.equal(reply.headers.get('content-type')?.split(';')[0], type, accept);
  }
});

test("R20: the top-up status returns an account's balance", async (t) => {
  const { gateway } = await shop(t);
  const account = await gateway.fund(500);
  const active = await gateway.call(`/top-up/status?account=${account}`);
  t.strictSame(active.json, {
    accountId: account,
    balanceMicroUsd: 5000000,
    balanceUsd: '5.000000',
    currency: 'USD',
    status: 'active',
    links: { credits: `http://speechgate.test/credits/${account}` },
  });
  const unknown = await gateway.call('/top-up/status?account=nobody');
  t.equal(unknown.status, 404);
  t.equal(unknown.json.status, 'not_found');
  t.equal(unknown.json.balanceMicroUsd, 0);
  for (const query of ['', '?account=', '?account=%20%20', `?account=${'a'.repeat(101)}`, '?account=a&account=b']) {
    t.equal((await gateway.call(`/top-up/status${query}`)).status, 400, query);
  }
});

test('an address may begin 10 purchases a minute, further ones are 429', async (t) => {
  const { gateway, checkout } = await shop(t, { TOP_UP_RATE_LIMIT_MAX: '', RATE_LIMIT_MAX: '1' });
  const statuses = [];
  for (let count = 0; count < 12; count++) statuses.push((await gateway.call('/top-up', form({}))).status);
  t.strictSame(statuses, [...Array.from({ length: 10 }, () => 303), 429, 429]);
  const refused = await gateway.call('/top-up', form({}));
  t.equal(refused.json.error.code, 'RATE_LIMITED');
  t.equal(refused.headers.get('x-ratelimit-policy'), '10;w=60');
  t.equal(refused.headers.get('x-ratelimit-scope'), 'top-up');
  t.ok(Number(refused.headers.get('retry-after')) > 0);
  const request = form({});
  const page = await gateway.call('/top-up', { ...request, headers: { ...request.headers, accept: 'text/html,*/*' } });
  t.equal(page.status, 429);
  t.match(page.headers.get('content-type') ?? '', /text\/html/);
  t.equal(page.headers.get('x-ratelimit-scope'), 'top-up');
  t.match(page.text, new RegExp(`You were not charged. Try again in ${page.headers.get('retry-after')} seconds?\\.`));
  t.equal((await gateway.db.selectFrom('top_up').select('id').execute()).length, 10);
  t.equal((await checkout.stripe.checkout.sessions.list({ limit: 100 })).data.length, 10);
  t.equal((await gateway.call('/top-up')).status, 200, 'the page itself is not counted');
});

const asBrowser = (fields: Record<string, string>) => {
  const request = form(fields);
  return { ...request, headers: { ...request.headers, accept: 'text/html,*/*' } };
};

test('the form offers four amounts, the requested one and a custom one', async (t) => {
  const { gateway } = await shop(t, { TOP_UP_MAX_CENTS: '150000' });
  const cases: [query: string, choices: string][] = [
    ['', '500* 1000 2000 5000 own'],
    ['?amount=2000', '500 1000 2000* 5000 own'],
    ['?amount=1234', '500 1000 1234* 2000 5000 own'],
    ['?amount=100000', '500 1000 2000 5000 100000* own'],
  ];
  for (const [query, choices] of cases) {
    t.equal(offered((await gateway.call(`/top-up${query}`)).text), choices, query);
  }
  t.match((await gateway.call('/top-up?amount=100000')).text, />\$1,000\.00</);
  const small = await startGateway(t, { TOP_UP_MAX_CENTS: '1500' });
  t.equal(offered((await small.call('/top-up?amount=5000')).text), '500 1000 1500* own');
  const smallest = await startGateway(t, { TOP_UP_MAX_CENTS: '500' });
  t.equal(offered((await smallest.call('/top-up')).text), '500*', 'there is no other amount');
  const refused = await smallest.call('/top-up', asBrowser({ amount: 'own', ownAmount: '7' }));
  t.match(refused.text, /at most \$5\.00/);
});

test('a custom amount is bought as typed', async (t) => {
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
    t.equal((await gateway.call('/top-up', asBrowser({ amount: 'own', ownAmount }))).status, 303, ownAmount);
    const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
    t.equal(session?.amount_total, cents, ownAmount);
  }
  await gateway.call('/top-up', form({ amount: '2000', ownAmount: '7' }));
  const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
  t.equal(session?.amount_total, 2000, 'an own amount that is not chosen is not read');
  await gateway.call('/top-up', form({ amount: 'own' }));
  const [without] = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data;
  t.equal(without?.amount_total, 500, 'R14: without ownAmount it is an amount like any that is no number');
});

test('an invalid custom amount is asked for again and kept as typed', async (t) => {
  const { gateway, checkout } = await shop(t, { TOP_UP_MAX_CENTS: '150000', TOP_UP_RATE_LIMIT_MAX: '1' });
  const accountId = await gateway.fund(500);
  const cases: [typed: string, rule: string, message: RegExp][] = [
    ['', 'format', /The amount must be in US dollars, such as 12\.50\. You were not charged\./],
    ['12,50', 'format', /such as 12\.50/],
    ['12.345', 'format', /such as 12\.50/],
    ['-20', 'format', /such as 12\.50/],
    ['"><b>', 'format', /such as 12\.50/],
    ['4.99', 'minimum', /at least \$5\.00/],
    ['0', 'minimum', /at least \$5\.00/],
    ['1500.01', 'maximum', /at most \$1,500\.00/],
    ['9'.repeat(99), 'maximum', /at most \$1,500\.00/],
  ];
  for (const [ownAmount, rule, message] of cases) {
    const fields = { amount: 'own', ownAmount, accountId, challengeId: 'from-a-402' };
    const page = await gateway.call('/top-up', asBrowser(fields));
    t.equal(page.status, 400, ownAmount);
    t.equal(offered(page.text), '500 1000 2000 5000 own*', ownAmount);
    t.match(page.text, message, ownAmount);
    const kept = ownAmount.replace('"><b>', '&quot;&gt;&lt;b&gt;');
    t.ok(page.text.includes(`name="ownAmount" value="${kept}"`), ownAmount);
    t.ok(page.text.includes(`name="accountId" value="${accountId}"`));
    t.ok(page.text.includes('name="challengeId" value="from-a-402"'));
    t.equal(page.headers.get('cache-control'), 'private, no-store');
    const policy = page.headers.get('content-security-policy') ?? '';
    t.ok(policy.includes(`form-action 'self' ${checkout.origin}`), 'R19: it can be corrected right there');

    const structured = await gateway.call('/top-up', form(fields));
    t.equal(structured.status, 400, ownAmount);
    t.equal(structured.json.error.code, 'INVALID_REQUEST');
    t.match(structured.json.error.message, message);
    t.equal(structured.json.error.details.field, 'ownAmount');
    t.equal(structured.json.error.details.rule, rule, ownAmount);
  }
  t.equal((await gateway.call('/top-up', form({ amount: 'own', ownAmount: '5' }))).status, 303, 'none has counted');
  t.equal((await checkout.stripe.checkout.sessions.list()).data.length, 1);
});

test('an unknown account is reported before payment, and can be corrected or left out', async (t) => {
  const { gateway, checkout } = await shop(t);
  const unknown = '6b1f0f9e-0000-4000-8000-000000000000';
  const known = await gateway.fund(500);
  const asked = (account: string) => `/top-up?amount=1234&account=${encodeURIComponent(account)}&challenge=a-1`;
  const get = await gateway.call(asked(unknown));
  t.equal(get.status, 200);
  const post = await gateway.call('/top-up', asBrowser({ amount: '1234', accountId: unknown, challengeId: 'a-1' }));
  t.equal(post.status, 400);
  for (const page of [get, post]) {
    t.match(page.text, /There is no account with this id/);
    t.match(
      page.text,
      new RegExp(`name="accountId" value="${unknown}"[^>]* aria-invalid="true"`),
      'it can be corrected',
    );
    t.equal(offered(page.text), '500 1000 1234* 2000 5000 own');
    t.match(page.text, /name="challengeId" value="a-1"/);
    t.equal(page.headers.get('cache-control'), 'private, no-store');
  }
  t.equal((await checkout.stripe.checkout.sessions.list()).data.length, 0, 'nothing is bought by mistake');
  t.match((await gateway.call(asked('"><b>not a uuid'))).text, /value="&quot;&gt;&lt;b&gt;not a uuid"/);
  const launcher = await gateway.call(asked(` ${known} `));
  t.notMatch(launcher.text, /There is no account/);
  t.match(launcher.text, new RegExp(`name="accountId" value="${known}"`));
});

test('no URL of the pages or of the checkout has the account id', async (t) => {
  const { gateway, checkout } = await shop(t);
  const accountId = await gateway.fund(500);
  const newest = async () => (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data[0];
  const fields = { amount: 'own', ownAmount: '12.34', accountId, challengeId: 'a-1' };
  const opened = await gateway.call('/top-up', asBrowser(fields));
  const session = await newest();
  const back = new URL(session?.cancel_url ?? '');
  const canceled = await gateway.call(`${back.pathname}${back.search}`);
  const unpaid = await gateway.call(`/top-up/complete?session_id=${session?.id}`);
  const paid = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
  const complete = await gateway.call(`${paid.pathname}${paid.search}`);
  const urls = [
    session?.cancel_url,
    session?.success_url,
    session?.url,
    ...[canceled, unpaid, complete].flatMap(({ text }) => links(text)),
  ];
  const shown = urls.filter((url) => url?.includes(accountId));
  t.strictSame(shown, [`data:text/plain,${accountId}`], 'the download has no address');

  const [again = assert.fail(), more = assert.fail()] = [unpaid, complete].map(({ text }) =>
    links(text).find((link) => link.startsWith('/top-up?purchase=')),
  );
  t.equal(again, more);
  for (const page of [canceled, await gateway.call(more)]) {
    t.match(page.text, /<dd>The account of your earlier purchase/);
    t.notMatch(page.text, new RegExp(accountId));
    t.equal(offered(page.text), '500 1000 1234* 2000 5000 own');
    t.match(page.text, /name="challengeId" value="a-1"/);
  }
  const purchaseId = /name="purchaseId" value="([^"]+)"/.exec(canceled.text)?.[1] ?? '';
  await gateway.call(await buy(gateway, checkout, { amount: '500', purchaseId }));
  t.equal(await gateway.balance(accountId), 5_000_000n + 12_340_000n + 5_000_000n);
  await gateway.call(await buy(gateway, checkout, { amount: '500', purchaseId, accountId: await gateway.fund(500) }));
  t.equal(await gateway.balance(accountId), 22_340_000n, 'an account that is typed goes first');
});

test('a frozen account is refused by its purchase too, and its id is not shown', async (t) => {
  const { gateway, checkout } = await shop(t);
  const accountId = await gateway.fund(500);
  await buy(gateway, checkout, { accountId });
  await gateway.db.updateTable('account').set({ frozen_at: new Date() }).where('id', '=', accountId).execute();
  const purchaseId = (await checkout.stripe.checkout.sessions.list({ limit: 1 })).data[0]?.metadata?.top_up_id ?? '';
  const page = await gateway.call('/top-up', asBrowser({ purchaseId }));
  t.equal(page.status, 400);
  t.match(page.text, /The operator has frozen this account/);
  t.notMatch(page.text, new RegExp(accountId));
});

test('a buyer who cancels returns to the same purchase, uncharged and without an account yet', async (t) => {
  const { gateway, checkout } = await shop(t);
  await gateway.call('/top-up', form({ amount: '700' }));
  const back = new URL((await checkout.stripe.checkout.sessions.list()).data[0]?.cancel_url ?? '');
  const page = await gateway.call(`${back.pathname}${back.search}`);
  t.match(page.text, /You left the checkout/);
  t.match(page.text, /New account \(created after payment\)/);
  t.equal(offered(page.text), '500 700* 1000 2000 5000 own');
});

test('a purchase that does not exist tops up no new account', async (t) => {
  const { gateway } = await shop(t);
  for (const purchaseId of ['nobody', '6b1f0f9e-0000-4000-8000-000000000000']) {
    const reply = await gateway.call('/top-up', form({ purchaseId }));
    t.equal(reply.status, 400);
    t.equal(reply.json.error.details.field, 'purchaseId');
    t.match((await gateway.call(`/top-up?purchase=${purchaseId}`)).text, /New account/);
  }
});

test("R14: the page says that it chose another amount than the URL's", async (t) => {
  const { gateway } = await shop(t, { TOP_UP_MAX_CENTS: '2000' });
  const cases: [amount: string, note: RegExp | undefined][] = [
    ['', undefined],
    ['500', undefined],
    ['0700', undefined],
    ['499', /is too small, so the minimum \$5\.00 is chosen/],
    ['2001', /is too large, so the maximum \$20\.00 is chosen/],
    ['7.5', /not a whole number of cents, so \$5\.00 is chosen/],
    ['-900', /not a whole number of cents/],
  ];
  for (const [amount, note] of cases) {
    const { text } = await gateway.call(`/top-up?amount=${amount}`);
    if (note) t.match(text, note, amount);
    else t.notMatch(text, /is chosen/, amount);
  }
});

test('a completed purchase shows cents and fractions of a cent exactly', async (t) => {
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
    t.ok(text.includes(`<dd class="amount">${shown}</dd>`), shown);
  }
});

test('a page that sells nothing has a link to continue', async (t) => {
  const off = await startGateway(t, { STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' });
  const down = await startGateway(t);
  for (const [gateway, path, status, ways] of [
    [down, '/top-up/complete', 400, ['/top-up']],
    [down, '/top-up/complete?session_id=cs_test_1', 502, ['', '/top-up']],
    [off, '/top-up', 200, ['/docs']],
    [off, '/top-up/complete?session_id=cs_test_1', 503, ['/top-up']],
  ] as const) {
    const page = await gateway.call(path);
    t.strictSame([page.status, links(page.text)], [status, ways], path);
  }
});

test('the pages before and after a purchase say who sells and where to ask', async (t) => {
  const env = {
    SELLER_NAME: 'Acme Speech',
    SERVICE_CONTACT: 'help@acme.example',
    TERMS_URL: 'https://acme.example/terms',
    PRIVACY_URL: 'https://acme.example/privacy',
  };
  const { gateway, checkout } = await shop(t, env);
  const launcher = await gateway.call('/top-up');
  const credited = await gateway.call(await buy(gateway, checkout));
  const account = await gateway.call('/account', form({ accountId: shownAccount(credited.text) }));
  const asked = ['mailto:help@acme.example', 'https://acme.example/terms', 'https://acme.example/privacy'];
  for (const { text } of [launcher, credited, account, await gateway.call('/account')]) {
    t.match(text, /<span>Acme Speech<\/span>/);
    t.strictSame(
      links(text).filter((link) => /^(mailto|https):/.test(link)),
      asked,
    );
  }
  t.match(launcher.text, /You can ask the seller to refund credit/);
  const unknown = await startGateway(t, { SERVICE_CONTACT: '' });
  t.notMatch((await unknown.call('/top-up')).text, /ask the seller|mailto:/);
});

test('pages escape their values and allow only their own style and form', async (t) => {
  const { gateway, checkout } = await shop(t);
  const evil = '"><script>alert(1)</script>';
  const page = await gateway.call(`/top-up?account=${encodeURIComponent(evil)}&challenge=${encodeURIComponent(evil)}`);
  t.equal(page.status, 200);
  t.notMatch(page.text, /<script/);
  const policy = page.headers.get('content-security-policy') ?? '';
  t.match(policy, /default-src 'none'; style-src 'sha256-[^']+'; form-action 'self' http:\/\/127\.0\.0\.1:\d+;/);
  t.ok(policy.includes(checkout.origin), 'R19: the checkout may be reached from the form');
  for (const query of [
    `account=${'a'.repeat(101)}`,
    `challenge=${'a'.repeat(101)}`,
    'amount=%zz',
    'amount=1&amount=2',
  ]) {
    t.equal((await gateway.call(`/top-up?${query}`)).status, 400, query);
  }
});
