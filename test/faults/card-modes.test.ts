import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type Stripe from 'stripe';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { Processor } from '../../src/payments/top-up/processor.ts';
import { Purchases } from '../../src/payments/top-up/purchases.ts';
import { testDatabase } from '../support/database.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { testUpstream } from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';

const KEYS = { test: 'rk_test_gateway', live: 'sk_live_gateway' };
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

/** Two gateways on one database, one with each kind of key. */
async function twoGateways(t: Test) {
  const upstream = await testUpstream(t);
  const { url: databaseUrl } = await testDatabase(t);
  const start = (STRIPE_SECRET_KEY: string) =>
    startGateway(t, { STRIPE_SECRET_KEY, SPEECH_BASE_URL: upstream.url }, { databaseUrl });
  return { test: await start(KEYS.test), live: await start(KEYS.live), upstream };
}

async function fund({ db }: Gateway, livemode: boolean): Promise<string> {
  const paid = { topUpId: randomUUID(), sessionId: `cs_${randomUUID()}`, accountId: randomUUID(), challengeId: null };
  return (await creditTopUp(db, { ...paid, livemode, amountCents: 500 })).accountId;
}

/** What each use of the account answers: speech, a job, both reads, and a top-up. */
async function uses(gateway: Gateway, account: string) {
  const headers = { 'x-credit-account': account };
  const replies = [
    await gateway.call('/tts?text=Hello+world', { headers }),
    await gateway.call('/tts?text=Hello+world&async=true', { headers: { ...headers, 'idempotency-key': 'one' } }),
    await gateway.call(`/credits/${account}`),
    await gateway.call(`/top-up/status?account=${account}`),
    await gateway.call('/top-up', { method: 'POST', headers: FORM, body: `accountId=${account}` }),
  ];
  return replies.map(({ status }) => status);
}

test('an account of one Stripe mode is unknown to a key of the other mode', async (t) => {
  const gateways = await twoGateways(t);
  for (const [own, other, livemode] of [
    [gateways.test, gateways.live, false],
    [gateways.live, gateways.test, true],
  ] as const) {
    const account = await fund(own, livemode);
    t.strictSame(await uses(other, account), [402, 402, 404, 404, 400]);
    const reply = await other.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
    t.equal(reply.headers.get('x-ratelimit-scope'), 'ip', 'R13: it counts as an unknown one');
    t.equal(await own.balance(account), 5_000_000n);
    // The processor is not there: its call fails, after the account was found.
    t.strictSame(await uses(own, account), [200, 202, 200, 200, 502]);
    t.strictSame(await audit(own.db), []);
  }
});

test('R16: a checkout session of the other mode never credits an account', async (t) => {
  const { test: gateway } = await twoGateways(t);
  const account = await fund(gateway, false);
  const instance = await gateway.db.selectFrom('instance').select('id').executeTakeFirstOrThrow();
  const session = (topUp: string, livemode: boolean) =>
    ({
      id: `cs_${randomUUID()}`,
      ...{ livemode, mode: 'payment', currency: 'usd', payment_status: 'paid', amount_total: 700 },
      metadata: { instance_id: instance.id, top_up_id: topUp, account_id: account },
    }) as unknown as Stripe.Checkout.Session;
  const service = { baseUrl: gateway.url, serviceName: 'speechgate' };
  const live = new Purchases(gateway.db, new Processor(KEYS.live, 'http://127.0.0.1:1'), service);
  const recorded = randomUUID();
  await gateway.db
    .insertInto('top_up')
    .values({ id: recorded, account_id: account, amount_cents: 700, state: 'open', session_id: 'cs_recorded' })
    .execute();
  for (const topUp of [recorded, randomUUID()]) {
    t.equal((await live.credit(session(topUp, true))).outcome, 'foreign_session');
  }
  t.equal(await gateway.balance(account), 5_000_000n);
  t.strictSame(await audit(gateway.db), []);
  const own = new Purchases(gateway.db, new Processor(KEYS.test, 'http://127.0.0.1:1'), service);
  t.equal((await own.credit(session(recorded, false))).outcome, 'credited');
  t.equal(await gateway.balance(account), 12_000_000n);
});

test('an account without a mode takes the mode of the first key that uses it', async (t) => {
  const gateways = await twoGateways(t);
  const account = await fund(gateways.test, false);
  await unguarded(gateways.test.db, (db) => sql`update account set livemode = null where kind = 'card'`.execute(db));
  await gateways.live.app.databaseIdentity.check();
  await gateways.test.app.databaseIdentity.check();
  t.equal((await gateways.test.call(`/credits/${account}`)).status, 404);
  t.equal((await gateways.live.call(`/credits/${account}`)).status, 200);
});
