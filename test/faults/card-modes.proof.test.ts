import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { sql } from 'kysely';
import type Stripe from 'stripe';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { creditTopUp } from '../../src/top-up/credit-top-up.ts';
import { Processor } from '../../src/top-up/processor.ts';
import { Purchases } from '../../src/top-up/purchases.ts';
import { testDatabase } from '../support/database.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';

const KEYS = { test: 'rk_test_gateway', live: 'sk_live_gateway' };
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

/** Two gateways on one database, one with each kind of key. */
async function twoGateways(t: Test) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
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

test('credit of the test mode is unknown to a live key, and the reverse: nothing is charged or opened', async (t) => {
  const gateways = await twoGateways(t);
  for (const [own, other, livemode] of [
    [gateways.test, gateways.live, false],
    [gateways.live, gateways.test, true],
  ] as const) {
    const account = await fund(own, livemode);
    assert.deepEqual(await uses(other, account), [402, 402, 404, 404, 400]);
    const reply = await other.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
    assert.equal(reply.headers.get('x-ratelimit-scope'), 'ip', 'R13: it counts as an unknown one');
    assert.equal(await own.balance(account), 5_000_000n);
    // The processor is not there: its call fails, after the account was found.
    assert.deepEqual(await uses(own, account), [200, 202, 200, 200, 502]);
    assert.deepEqual(await audit(own.db), []);
  }
});

test('R16: a session of the other mode never credits an account', async (t) => {
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
    assert.equal((await live.credit(session(topUp, true))).outcome, 'foreign_session');
  }
  assert.equal(await gateway.balance(account), 5_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
  const own = new Purchases(gateway.db, new Processor(KEYS.test, 'http://127.0.0.1:1'), service);
  assert.equal((await own.credit(session(recorded, false))).outcome, 'credited');
  assert.equal(await gateway.balance(account), 12_000_000n);
});

test('an account that is older than modes belongs to the first key that comes, for ever', async (t) => {
  const gateways = await twoGateways(t);
  const account = await fund(gateways.test, false);
  await unguarded(gateways.test.db, (db) => sql`update account set livemode = null where kind = 'card'`.execute(db));
  await gateways.live.app.belonging.check();
  await gateways.test.app.belonging.check();
  assert.equal((await gateways.test.call(`/credits/${account}`)).status, 404);
  assert.equal((await gateways.live.call(`/credits/${account}`)).status, 200);
});

/** A database as it was before modes, with accounts that these sessions have credited. */
async function beforeModes(t: Test, sessions: Record<string, string[]>) {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  await sql`
    drop trigger x402_payment_belongs on x402_payment;
    drop trigger x402_payment_belongs_still on x402_payment;
    drop trigger instance_keeps_network on instance;
    drop trigger account_mode on account`.execute(db);
  await sql
    .raw(`
    drop function x402_payment_belongs; drop function instance_keeps_network;
    alter table instance drop column network, drop column asset, drop column card_livemode;
    alter table account drop column livemode; alter table x402_payment drop column next_look_at`)
    .execute(db);
  const ids: Record<string, string> = {};
  for (const [name, credits] of Object.entries(sessions)) {
    const id = randomUUID();
    ids[name] = id;
    await db.insertInto('account').values({ id, kind: 'card', balance_micro_usd: 0n }).execute();
    const rows = credits.map((session) => ({
      ...{ account_id: id, amount_cents: 1, state: 'credited', credited_at: new Date() },
      session_id: `${session}${randomUUID()}`,
    }));
    await db.insertInto('top_up').values(rows).execute();
  }
  return { db, ids };
}

/** Applies the migration of this name again, as `npm run migrate` would. */
async function migrateTo(db: ReturnType<typeof openDatabase>, suffix: string): Promise<void> {
  const directory = new URL('../../db/migrations/', import.meta.url);
  const file = (await readdir(directory)).find((name) => name.endsWith(suffix)) ?? '';
  const text = await readFile(new URL(file, directory), 'utf8');
  await db.transaction().execute((trx) => sql.raw(text).execute(trx));
}

test('the migration takes the mode of existing accounts from their sessions', async (t) => {
  for (const [sessions, instance, modes] of [
    [{ a: ['cs_live_'], b: ['cs_live_'] }, true, { a: null, b: null }],
    [{ a: ['cs_test_'] }, false, { a: null }],
    [{ a: ['cs_live_'], b: ['cs_test_'], c: ['cs_test_', 'cs_live_'] }, true, { a: null, b: false, c: null }],
    [{ a: ['cs_live_'], b: ['cs_test_'], c: ['other_'] }, null, { a: true, b: false, c: null }],
    [{}, null, {}],
  ] as [Record<string, string[]>, boolean | null, Record<string, boolean | null>][]) {
    const { db, ids } = await beforeModes(t, sessions);
    await migrateTo(db, '_identity.sql');
    const { card_livemode } = await db.selectFrom('instance').select('card_livemode').executeTakeFirstOrThrow();
    assert.equal(card_livemode, instance, JSON.stringify(sessions));
    const rows = await db.selectFrom('account').select(['id', 'livemode']).where('kind', '=', 'card').execute();
    const found = Object.entries(ids).map(([name, id]) => [name, rows.find((row) => row.id === id)?.livemode]);
    assert.deepEqual(Object.fromEntries(found), modes, JSON.stringify(sessions));
  }
});
