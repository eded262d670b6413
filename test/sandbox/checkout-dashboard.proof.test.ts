import assert from 'node:assert/strict';
import { test } from 'tap';
import { balanceOf, FORM, get, purchase, setUp } from './checkout-client.ts';

test('a person refunds and disputes a purchase on the dashboard', async (t) => {
  const { stripe, origin } = await setUp(t);
  const page = async () => (await get(`${origin}/dashboard`)).text();
  const send = (fields: Record<string, string>, headers = {}) => {
    const body = new URLSearchParams(fields);
    return fetch(`${origin}/dashboard`, { method: 'POST', headers: { ...FORM, ...headers }, body, redirect: 'manual' });
  };
  assert.match(await page(), /Nothing was paid yet/);
  const { session, charge } = await purchase(stripe);
  assert.ok((await page()).includes(session));
  assert.doesNotMatch(await page(), /<script/);

  const refunded = await send({ id: session, action: 'refund', amount: '250' });
  assert.deepEqual([refunded.status, refunded.headers.get('location')], [303, '/dashboard']);
  const [refund] = (await stripe.refunds.list({ charge })).data;
  assert.equal(refund?.amount, 250);
  assert.match(await page(), /Refund of \$2\.50: succeeded/);
  await send({ id: String(refund?.id), action: 'settle', status: 'failed' });
  assert.equal((await stripe.charges.retrieve(charge)).amount_refunded, 0);

  await send({ id: session, action: 'dispute', amount: '1250' });
  const [dispute] = (await stripe.disputes.list({ charge })).data;
  assert.equal(await balanceOf(stripe), 0);
  const refused = await send({ id: session, action: 'refund' });
  assert.equal(refused.status, 400);
  assert.match(await refused.text(), /has been charged back/);
  await send({ id: String(dispute?.id), action: 'decide', status: 'won' });
  assert.match(await page(), /Dispute of \$12\.50: won/);
  assert.equal(await balanceOf(stripe), 1250);

  const foreign = await send({ id: session, action: 'refund' }, { 'sec-fetch-site': 'cross-site' });
  assert.equal(foreign.status, 403);
  assert.equal((await send({ id: 'cs_none', action: 'refund' })).status, 404);
  assert.equal((await send({ id: session, action: 'steal' })).status, 400);
  assert.equal(await balanceOf(stripe), 1250);
});
