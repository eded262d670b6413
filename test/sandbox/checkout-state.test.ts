import { appendFile, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { STRIPE_KEY, stripeAt, testCheckout } from '../support/checkout.ts';
import { startScript } from '../support/child.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';
import { balanceOf, chargeOf, choose, order, purchase, urlOf } from './checkout-client.ts';
import { answersItsOwnHostOnly } from './own-host.ts';

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
