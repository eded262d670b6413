import { randomUUID } from 'node:crypto';
import Stripe from 'stripe';
import { t, test } from 'tap';
import { audit } from '../../../src/ledger/audit.ts';
import { TurnLeases } from '../../../src/reconcile/runner.ts';
import { testCheckout } from '../../support/checkout.ts';
import { type Gateway, startGateway } from '../../support/gateway.ts';
import { until } from '../../support/until.ts';

const SECRET = 'whsec_of_the_gateway_under_test';
const HOUR_SECONDS = 3600;

const checkout = await testCheckout(t);
/** Its reconcilers run once a day, so that whatever they book within a test was hurried. */
const gateway = await startGateway(t, { ...checkout.env, STRIPE_WEBHOOK_SECRET: SECRET });

async function buy(by: 'accepted' | 'bank' = 'accepted') {
  const body = new URLSearchParams({ amount: '700' }).toString();
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const opened = await gateway.call('/top-up', { method: 'POST', headers, body });
  const url = opened.headers.get('location') ?? '';
  await checkout.pay(url, '', by);
  const session = url.split('/').at(-1) ?? '';
  const purchases = gateway.db.selectFrom('top_up').selectAll().where('session_id', '=', session);
  const { id, account_id } = await purchases.executeTakeFirstOrThrow();
  return { session, id, account: account_id };
}

const event = (type: string, id: string, more: object = {}): string =>
  JSON.stringify({ id: `evt_${randomUUID()}`, object: 'event', type, data: { object: { id, ...more } } });

function deliver(gateway: Gateway, payload: string, { secret = SECRET, ageSeconds = 0, body = payload } = {}) {
  const timestamp = Math.floor(Date.now() / 1000) - ageSeconds;
  const signature = Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp });
  const headers = { 'content-type': 'application/json; charset=utf-8', 'stripe-signature': signature };
  return gateway.call('/webhooks/stripe', { method: 'POST', headers, body });
}

const isCredited = async (session: string) => {
  const { state } = await gateway.db
    .selectFrom('top_up')
    .select('state')
    .where('session_id', '=', session)
    .executeTakeFirstOrThrow();
  return state === 'credited';
};

// The first one: nothing that was signed is being looked up yet.
test('an event without a valid signature is 400, and nothing is looked up', async (t) => {
  const { session, id } = await buy();
  const payload = event('checkout.session.completed', session);
  const dueOf = () =>
    gateway.db.selectFrom('top_up').select('next_check_at').where('id', '=', id).executeTakeFirstOrThrow();
  const due = await dueOf();
  const unsigned = { method: 'POST', headers: { 'content-type': 'application/json' }, body: payload };
  for (const [fault, reply] of [
    ['of another secret', await deliver(gateway, payload, { secret: 'whsec_of_somebody_else' })],
    ['of another body', await deliver(gateway, payload, { body: payload.replace('completed', 'expired') })],
    ['older than five minutes', await deliver(gateway, payload, { ageSeconds: 301 })],
    ['absent', await gateway.call('/webhooks/stripe', unsigned)],
  ] as const) {
    t.equal(reply.status, 400, fault);
    t.equal(reply.json.error.details.field, 'stripe-signature', fault);
  }
  t.strictSame(await dueOf(), due);
  t.equal(await isCredited(session), false);
});

test('R16: a signed event makes a paid session credited now, once however often it arrives', async (t) => {
  const { session, account } = await buy();
  const payload = event('checkout.session.completed', session, { amount_total: 99_999_999, payment_status: 'paid' });
  t.equal((await deliver(gateway, payload)).status, 204);
  await until(() => isCredited(session));
  t.equal(await gateway.balance(account), 7_000_000n, 'booked is what the processor says');
  t.equal((await deliver(gateway, payload)).status, 204);
  const later = await buy();
  await deliver(gateway, event('checkout.session.completed', later.session));
  await until(() => isCredited(later.session));
  t.equal(await gateway.balance(account), 7_000_000n);
  t.strictSame(await audit(gateway.db), []);
});

test('R16: an event about an old purchase makes it the next that is checked', async (t) => {
  const { session, id, account } = await buy('bank');
  const aDayOn = new Date(Date.now() + 24 * HOUR_SECONDS * 1000);
  await gateway.db.updateTable('top_up').set({ next_check_at: aDayOn }).where('id', '=', id).execute();
  await checkout.endBankPayment(session, 'arrived');
  t.equal((await deliver(gateway, event('checkout.session.async_payment_succeeded', session))).status, 204);
  await until(() => isCredited(session));
  t.equal(await gateway.balance(account), 7_000_000n);
});

test('R61: signed events make refunds and the ends of disputes booked now', async (t) => {
  const { session, account } = await buy();
  await deliver(gateway, event('checkout.session.completed', session));
  await until(() => isCredited(session));
  const { id: refund } = await checkout.refund({ session, amountCents: 200 });
  await deliver(gateway, event('refund.created', refund));
  await until(async () => (await gateway.balance(account)) === 5_000_000n);
  const { id: dispute } = await checkout.openDispute({ session, amountCents: 300 });
  await deliver(gateway, event('charge.dispute.created', dispute));
  await until(async () => (await gateway.balance(account)) === 2_000_000n);
  await checkout.updateDispute(dispute, 'won');
  await deliver(gateway, event('charge.dispute.closed', dispute));
  await until(async () => (await gateway.balance(account)) === 5_000_000n);
  t.strictSame(await audit(gateway.db), []);
});

test('an event arrives while another process has the turn, and is read after it', async (t) => {
  const { session } = await buy();
  await new TurnLeases(gateway.db).run('top_ups', 0, async () => {
    await deliver(gateway, event('checkout.session.completed', session));
    t.equal(await isCredited(session), false);
  });
  await until(() => isCredited(session));
});

test('while its secret is rolled an event has a signature of each, and either counts', async (t) => {
  const payload = event('checkout.session.completed', (await buy()).session);
  const timestamp = Math.floor(Date.now() / 1000);
  const [own, other] = [SECRET, 'whsec_of_the_other'].map((secret) =>
    Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp }).replace(/^t=\d+,/, ''),
  );
  for (const signatures of [`${own},${other}`, `${other},${own}`]) {
    const headers = { 'content-type': 'application/json', 'stripe-signature': `t=${timestamp},${signatures}` };
    t.equal((await gateway.call('/webhooks/stripe', { method: 'POST', headers, body: payload })).status, 204);
  }
});

test('without STRIPE_WEBHOOK_SECRET the path of events is 404, whatever arrives', async (t) => {
  const gateway = await startGateway(t);
  t.equal((await deliver(gateway, event('checkout.session.completed', 'cs_test_1'))).status, 404);
  t.equal((await gateway.call('/webhooks/stripe', { method: 'POST', body: 'no json' })).status, 404);
  t.equal((await gateway.call('/webhooks/stripe')).status, 404);
});

test('events are limited at the edge and in size, and not listed at GET /', async (t) => {
  const large = await deliver(gateway, JSON.stringify({ padding: 'x'.repeat(262_144) }));
  t.strictSame([large.status, large.json.error.details.maximum], [413, 262_144]);
  t.notMatch((await gateway.call('/')).text, /webhooks/);
  for (const payload of [event('invoice.paid', 'in_1'), event('checkout.session.completed', 'cs_of_another_shop')])
    t.equal((await deliver(gateway, payload)).status, 204, 'other signed events and unknown ids are accepted');
  const limited = await startGateway(t, { STRIPE_WEBHOOK_SECRET: SECRET, EDGE_RATE_LIMIT_MAX: '1' });
  t.equal((await deliver(limited, event('invoice.paid', 'in_1'))).status, 204);
  t.equal((await deliver(limited, event('invoice.paid', 'in_2'))).status, 429);
});
