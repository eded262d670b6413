/** Payments from a bank account: the checkout is complete at once, and the money arrives days later, or never. */
import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { auditPurchases } from '../../src/audit/processor-purchases.ts';
import { audit } from '../../src/ledger/audit.ts';
import { Processor } from '../../src/top-up/processor.ts';
import { age, HOUR, open, purchase, settings, setUp } from '../reconcile/open-purchases.ts';
import { answerWith } from '../support/faulty-checkout.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { runTurn } from '../support/reconcile.ts';
import { links } from './shop.ts';

const DAY = 24 * HOUR;
const back = (gateway: Gateway, session: string) => gateway.call(`/top-up/complete?session_id=${session}`);

async function sent(t: Test, fields: Record<string, string> = {}) {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway, fields);
  await checkout.pay(session, 'bank');
  return { checkout, gateway, session };
}

test('the page of a bank payment on its way says so, and asks for no second one', async (t) => {
  const { checkout, gateway, session } = await sent(t);
  const page = await back(gateway, session);
  assert.equal(page.status, 402);
  assert.match(page.text, /<h1>Your bank is still processing the payment<\/h1>/);
  assert.match(page.text, /Do not pay again/);
  assert.deepEqual(links(page.text), [''], 'only to look again');
  assert.equal((await runTurn(gateway, 'top_ups')).count, 0);

  await checkout.endBankPayment(session, 'arrived');
  assert.match((await back(gateway, session)).text, /\$7\.00 was added/);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a payment whose state can not be read counts as one on its way', async (t) => {
  const { checkout, gateway, session } = await sent(t);
  const forbidden = answerWith(403, '{"error":{"type":"invalid_request_error","message":"no permission"}}');
  checkout.fault = (method, path, response) =>
    path.startsWith('/v1/payment_intents/') && forbidden(method, path, response);
  assert.match((await back(gateway, session)).text, /Do not pay again/);
});

test('a bank payment that was refused may be made again, for the same account', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const account = await gateway.fund(500);
  const session = await open(gateway, { accountId: account });
  await checkout.pay(session, 'bank');
  await checkout.endBankPayment(session, 'refused');
  const page = await back(gateway, session);
  assert.equal(page.status, 402);
  assert.match(page.text, /Your bank did not make this payment/);
  assert.deepEqual(links(page.text), [`/top-up?amount=700&account=${account}`]);
});

for (const state of ['open', 'expired'] as const) {
  test(`the page of an ${state} session keeps amount, account and challenge in its link`, async (t) => {
    const { checkout, gateway } = await setUp(t);
    const account = await gateway.fund(500);
    const session = await open(gateway, { accountId: account, challengeId: 'from-a-402' });
    if (state === 'expired') await checkout.stripe.checkout.sessions.expire(session);
    const page = await back(gateway, session);
    assert.equal(page.status, 402);
    assert.equal(page.headers.get('cache-control'), 'private, no-store');
    const again = links(page.text).at(-1) ?? '';
    assert.equal(again, `/top-up?amount=700&account=${account}&challenge=from-a-402`);
    assert.match(page.text, state === 'expired' ? /has expired. Nothing was charged/ : /has not been paid/);
    assert.match((await gateway.call(again)).text, new RegExp(`name="accountId" value="${account}"`));
  });
}

test('an account that nobody has paid for yet is in no link', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  await checkout.stripe.checkout.sessions.expire(session);
  assert.deepEqual(links((await back(gateway, session)).text), ['/top-up?amount=700']);
});

/** What becomes of a purchase whose session's id never reached the database, and how its row is then. */
const LOST: Readonly<Record<string, (gateway: Gateway, session: string) => Promise<unknown>>> = {
  'before it was recorded': ({ db }, session) =>
    sql`update top_up set state = 'opening', session_id = null where session_id = ${session}`.execute(db),
  'and its row has ended': ({ db }, session) =>
    sql`update top_up set state = 'expired', session_id = null where session_id = ${session}`.execute(db),
  'with its row, as by a restore': ({ db }, session) =>
    sql`delete from top_up where session_id = ${session}`.execute(db),
};

for (const [name, lose] of Object.entries(LOST)) {
  test(`R16: a session whose id was lost ${name} is credited when it is paid days later`, async (t) => {
    const { checkout, gateway, session } = await sent(t, { challengeId: 'from-a-402' });
    const { id, account_id } = await purchase(gateway, session);
    await lose(gateway, session);
    assert.equal((await runTurn(gateway, 'checkout_sweep')).outcome, 'done');
    const found = await purchase(gateway, session);
    const { state, account_id: account, amount_cents: cents, challenge_id: challenge } = found;
    assert.deepEqual([found.id, state, account, cents, challenge], [id, 'open', account_id, 700, 'from-a-402']);

    // The list is read past it, and a day is over, when the money arrives.
    await sql`update processor_list set read_until = now() where name = 'sessions'`.execute(gateway.db);
    await age(gateway, session, 9 * DAY);
    await checkout.endBankPayment(session, 'arrived');
    assert.equal((await runTurn(gateway, 'top_ups')).count, 1);
    assert.equal(await gateway.balance(account_id), 7_000_000n);
    assert.deepEqual(await audit(gateway.db), []);
    const processor = new Processor(checkout.secretKey, checkout.apiBase);
    assert.deepEqual((await auditPurchases(gateway.db, processor, () => {})).findings, []);
  });
}

test('R16: a complete, unpaid session of another service is not followed', async (t) => {
  const { checkout, gateway, session } = await sent(t);
  const other = await startGateway(t, settings(checkout));
  await sql`update instance set id = gen_random_uuid()`.execute(other.db);
  assert.equal((await runTurn(other, 'checkout_sweep')).outcome, 'done');
  assert.deepEqual(await other.db.selectFrom('top_up').selectAll().execute(), []);
  assert.equal((await purchase(gateway, session)).state, 'open');
});

test('sessions that can not be credited keep no other from being credited', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const good = await open(gateway);
  const bad = [await open(gateway), await open(gateway), await open(gateway), await open(gateway)];
  for (const session of [good, ...bad]) await checkout.pay(session);
  const { account_id } = await purchase(gateway, good);
  await sql`update top_up set state = 'opening', session_id = null where session_id = ${good}`.execute(gateway.db);
  checkout.rewrite = (_path, answer) => {
    const body = JSON.parse(answer);
    for (const each of [body, ...(body.data ?? [])]) if (bad.includes(each.id)) each.amount_total = 2 ** 40;
    return JSON.stringify(body);
  };
  const swept = await runTurn(gateway, 'checkout_sweep');
  assert.equal(swept.outcome, 'failed', 'which is logged');
  assert.equal(await gateway.balance(account_id), 7_000_000n);
  const list = await gateway.db
    .selectFrom('processor_list')
    .select('pass_started_at')
    .where('name', '=', 'sessions')
    .executeTakeFirstOrThrow();
  assert.equal(list.pass_started_at, null, 'the list is read to its end');
});

test('a session that is recorded as that of another purchase is refused, once and for all', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  await checkout.pay(session);
  await sql`delete from top_up where session_id = ${session}`.execute(gateway.db);
  await sql`
    insert into top_up (state, account_id, amount_cents, session_id, credited_at)
    values ('credited', gen_random_uuid(), 700, ${session}, now())`.execute(gateway.db);
  assert.equal((await back(gateway, session)).status, 500);
});
