import assert from 'node:assert/strict';
import { appendFile, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { test } from 'tap';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { balanceOf, client, KEY, newDirectory, purchase } from './checkout-client.ts';

async function start(t: Test, dataDir: string) {
  const checkout = await startCheckout({ dataDir, secretKey: KEY });
  t.teardown(checkout.close);
  return { ...checkout, stripe: client(checkout.apiBase) };
}

test('payments, refunds and disputes survive a restart, also one that cut off a change', async (t) => {
  const dataDir = await newDirectory(t);
  const first = await start(t, dataDir);
  const { session, charge } = await purchase(first.stripe);
  const refund = await first.refund({ session, amountCents: 300, status: 'pending' });
  const dispute = await first.openDispute({ session, amountCents: 100 });
  const ids = (await first.stripe.balanceTransactions.list()).data.map(({ id }) => id);
  await first.close();
  await appendFile(join(dataDir, 'checkout.json'), '{"refunds":[{"id":"re_cut');

  const second = await start(t, dataDir);
  assert.equal((await second.stripe.refunds.retrieve(refund.id)).status, 'pending');
  assert.equal((await second.stripe.disputes.retrieve(dispute.id)).amount, 100);
  assert.equal((await second.stripe.charges.retrieve(charge)).amount_refunded, 300);
  assert.deepEqual(
    (await second.stripe.balanceTransactions.list()).data.map(({ id }) => id),
    ids,
  );
  await second.settleRefund(refund.id, 'failed');
  await second.close();

  const third = await start(t, dataDir);
  assert.equal((await third.stripe.refunds.retrieve(refund.id)).status, 'failed');
  assert.equal(await balanceOf(third.stripe), 1150);
  await third.close();
  const file = join(dataDir, 'checkout.json');
  await writeFile(file, (await readFile(file, 'utf8')).replace('{', ''));
  await assert.rejects(startCheckout({ dataDir, secretKey: KEY }), /checkout\.json is damaged/);
});

/** As release 2.0 has written it: one line without an end, no payments. */
const FORMER = {
  port: 0,
  sessions: [
    {
      ...{ id: 'cs_test_former', created: 1_790_000_000, expiresAt: 1_790_086_400, state: 'paid' },
      ...{ paymentIntent: 'pi_0123456789abcdef01234567', currency: 'usd' },
      lineItems: [{ name: 'Credits', description: null, unitAmount: 500, quantity: 2 }],
      ...{ successUrl: 'http://127.0.0.1:8080/', cancelUrl: null, clientReferenceId: 'a', customerEmail: null },
      metadata: {},
    },
    {
      ...{ id: 'cs_test_unpaid', created: 1_790_000_001, expiresAt: 1_790_086_401, state: 'open', paymentIntent: null },
      ...{ currency: 'usd', lineItems: [{ name: 'Credits', description: null, unitAmount: 500, quantity: 1 }] },
      ...{ successUrl: 'http://127.0.0.1:8080/', cancelUrl: null, clientReferenceId: 'a', customerEmail: null },
      metadata: {},
    },
  ],
  replies: [],
};

test('what release 2.0 has sold can be refunded and disputed', async (t) => {
  const dataDir = await newDirectory(t);
  await writeFile(join(dataDir, 'checkout.json'), JSON.stringify(FORMER));
  const first = await start(t, dataDir);
  const charge = 'ch_0123456789abcdef01234567';
  assert.equal((await first.stripe.charges.retrieve(charge)).amount, 1000);
  const { data } = await first.stripe.balanceTransactions.list();
  assert.deepEqual(
    data.map(({ net, created }) => [net, created]),
    [[1000, 1_790_000_000]],
  );
  await first.close();
  const second = await start(t, dataDir);
  const [again] = (await second.stripe.balanceTransactions.list()).data;
  assert.equal(again?.id, data[0]?.id, 'it is booked once');
  await second.stripe.refunds.create({ charge, amount: 400 });
  await second.openDispute({ session: 'cs_test_former', amountCents: 600 });
  assert.equal(await balanceOf(second.stripe), 0);
});

test('a change writes as much when there is much as when there is little', async (t) => {
  const dataDir = await newDirectory(t);
  const checkout = await start(t, dataDir);
  const size = async () => (await stat(join(dataDir, 'checkout.json'))).size;
  const { session } = await purchase(checkout.stripe);
  const grown = async () => {
    const before = await size();
    const inode = (await stat(join(dataDir, 'checkout.json'))).ino;
    await checkout.refund({ session, amountCents: 1 });
    assert.equal((await stat(join(dataDir, 'checkout.json'))).ino, inode, 'nothing is written anew');
    return (await size()) - before;
  };
  const little = await grown();
  for (let index = 0; index < 500; index += 1) await checkout.refund({ session, amountCents: 1 });
  assert.ok(Math.abs((await grown()) - little) < 20);
});
