import assert from 'node:assert/strict';
import { test } from 'tap';
import { buy, form, links, shop } from '../../payments/top-up/shop.ts';
import { openAiError, startStubUpstream } from '../../support/stub-upstream.ts';
import { until } from '../../support/until.ts';

const UNKNOWN = '6b1f0f9e-0000-4000-8000-000000000000';

test("an account's page shows balance, charges with trace ids, and purchases", async (t) => {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const { gateway, checkout } = await shop(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  await gateway.call(await buy(gateway, checkout, { amount: '700', accountId: account }));
  const speak = (text: string) =>
    gateway.call(`/tts?text=${encodeURIComponent(text)}`, { headers: { 'x-credit-account': account } });
  const spoken = await speak('Hello world');
  upstream.mode = openAiError(500);
  const failed = await speak('Hello');
  t.strictSame([spoken.status, failed.status], [200, 502]);

  const show = () => gateway.call('/account', form({ accountId: ` ${account} ` }));
  await until(async () => !/reserved for unfinished speech/.test((await show()).text));
  const page = await show();
  t.equal(page.status, 200);
  t.equal(page.headers.get('cache-control'), 'private, no-store');
  t.match(page.text, /<dd class="amount">\$11\.999802<\/dd>/);
  const charges = [...page.text.matchAll(/<li>.*UTC<\/time>: ([^\n]*)\n<small>Trace id <code>([^<]*)</g)];
  t.strictSame(
    charges.map(([, charge, traceId]) => [charge, traceId]),
    [
      ['5 characters, $0.00009, not charged', failed.headers.get('x-trace-id')],
      ['11 characters, $0.000198', spoken.headers.get('x-trace-id')],
    ],
  );
  const purchases = [...page.text.matchAll(/<li>.*UTC<\/time>: (\$[\d.]+)<\/li>/g)].map(([, amount]) => amount);
  t.strictSame(purchases, ['$7.00', '$5.00']);
  const [more = assert.fail()] = links(page.text);
  t.notMatch(more, new RegExp(account));
  t.match((await gateway.call(more)).text, /The account of your earlier purchase/);
});

test('an unknown account gets the form again, and no other account is shown', async (t) => {
  const { gateway } = await shop(t);
  t.match((await gateway.call('/account')).text, /<form method="post" action="\/account">/);
  const wallet = await gateway.db
    .insertInto('account')
    .values({ kind: 'wallet', address: `0x${'a'.repeat(40)}`, balance_micro_usd: 5n })
    .returning('id')
    .executeTakeFirstOrThrow();
  for (const accountId of [UNKNOWN, 'nobody', '', '"><b>', wallet.id]) {
    const page = await gateway.call('/account', form({ accountId }));
    t.equal(page.status, 404, accountId);
    t.match(page.text, /There is no account with this id/);
    t.notMatch(page.text, /<b>|class="amount"/);
  }
});

test('a frozen account says so, and an account without history says that too', async (t) => {
  const { gateway } = await shop(t);
  const account = await gateway.fund(500);
  await gateway.db.updateTable('account').set({ frozen_at: new Date() }).where('id', '=', account).execute();
  const { text } = await gateway.call('/account', form({ accountId: account }));
  t.match(text, /The operator has frozen this account/);
  t.match(text, /None yet\./);
});
