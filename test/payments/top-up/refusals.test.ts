import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../../src/ledger/audit.ts';
import { auditPurchases } from '../../../src/operators/audit/processor-purchases.ts';
import { Processor } from '../../../src/payments/top-up/processor.ts';
import { age, HOUR, open, purchase, settings, setUp } from '../../reconcile/open-purchases.ts';
import { answerWith } from '../../support/faulty-checkout.ts';
import { type Gateway, startGateway } from '../../support/gateway.ts';
import { serve } from '../../support/listening.ts';
import { runTurn } from '../../support/reconcile.ts';
import { buy, form, links, shop } from './shop.ts';

test('R15: an unknown or frozen account is refused before any session is opened', async (t) => {
  const { gateway, checkout } = await shop(t);
  const accountId = '6b1f0f9e-0000-4000-8000-000000000000';
  const structured = await gateway.call('/top-up', form({ accountId }));
  t.equal(structured.status, 400);
  t.equal(structured.json.error.code, 'INVALID_REQUEST');
  t.equal(structured.json.error.details.field, 'accountId');
  const request = form({ accountId });
  const page = await gateway.call('/top-up', { ...request, headers: { ...request.headers, accept: 'text/html,*/*' } });
  t.equal(page.status, 400);
  t.match(page.headers.get('content-type') ?? '', /text\/html/);

  const frozen = await gateway.fund(500);
  await gateway.db.updateTable('account').set({ frozen_at: new Date() }).where('id', '=', frozen).execute();
  const refused = await gateway.call('/top-up', form({ accountId: frozen }));
  t.strictSame([refused.status, refused.json.error.details.rule], [400, 'not frozen']);
  for (const shown of [
    await gateway.call(`/top-up?account=${frozen}`, { headers: { accept: 'text/html' } }),
    await gateway.call('/top-up', {
      ...form({ accountId: frozen }),
      headers: { ...request.headers, accept: 'text/html' },
    }),
  ]) {
    t.match(shown.text, /The operator has frozen this account/);
  }
  t.equal((await checkout.stripe.checkout.sessions.list()).data.length, 0);
});

test('malformed forms are refused', async (t) => {
  const { gateway } = await shop(t);
  const type = { 'content-type': 'application/x-www-form-urlencoded' };
  const cases: [object, number][] = [
    [{ method: 'POST', json: {} }, 415],
    [{ method: 'POST', headers: type, body: 'amount=%zz' }, 400],
    [{ method: 'POST', headers: type, body: 'amount=500&amount=900' }, 400],
    [{ method: 'POST', headers: type, body: `accountId=${'a'.repeat(101)}` }, 400],
  ];
  for (const [request, status] of cases) t.equal((await gateway.call('/top-up', request)).status, status);
  t.equal((await gateway.call('/top-up', { method: 'POST' })).status, 303, 'the form is optional');
});

test('a malformed challenge is refused without purchase or session', async (t) => {
  const { gateway, checkout } = await shop(t);
  const type = { 'content-type': 'application/x-www-form-urlencoded' };
  // U+0000, and two lone surrogates as some encoders write them.
  for (const text of ['a%00b', '%00', '%ED%A0%80', '%ED%BF%BF']) {
    const posted = await gateway.call('/top-up', { method: 'POST', headers: type, body: `challengeId=${text}` });
    t.equal(posted.status, 400, text);
    t.equal(posted.json.error.code, 'INVALID_REQUEST');
    const shown = await gateway.call(`/top-up?challenge=${text}`);
    t.equal(shown.status, 400, text);
    t.equal(shown.json.error.code, 'INVALID_REQUEST');
  }
  const body = 'challengeId=%00';
  const page = await gateway.call('/top-up', { method: 'POST', headers: { ...type, accept: 'text/html' }, body });
  t.equal(page.status, 400);
  t.match(page.headers.get('content-type') ?? '', /text\/html/);
  t.equal((await gateway.db.selectFrom('top_up').select('id').execute()).length, 0);
  t.equal((await checkout.stripe.checkout.sessions.list()).data.length, 0);
});

test('an unpaid session is 402 and credits nothing', async (t) => {
  const { gateway, checkout } = await shop(t);
  await gateway.call('/top-up', form({}));
  const [session] = (await checkout.stripe.checkout.sessions.list()).data;
  const page = await gateway.call(`/top-up/complete?session_id=${session?.id}`);
  t.equal(page.status, 402);
  await checkout.stripe.checkout.sessions.expire(session?.id ?? '');
  t.equal((await gateway.call(`/top-up/complete?session_id=${session?.id}`)).status, 402);
  t.equal((await gateway.db.selectFrom('account').select('id').where('kind', '=', 'card').execute()).length, 0);
});

test('R16, R54: unknown, foreign and other-currency sessions are 502 and uncredited', async (t) => {
  const { gateway, checkout } = await shop(t);
  const other = await startGateway(t, checkout.env);
  // Test databases are copies of one template, and a copy has the instance id of its original.
  await other.db.updateTable('instance').set({ id: randomUUID() }).execute();
  const instance = await gateway.db.selectFrom('instance').select('id').executeTakeFirstOrThrow();
  const open = async (currency: string, metadata: Record<string, string>) => {
    const session = await checkout.stripe.checkout.sessions.create({
      mode: 'payment',
      success_url: 'http://speechgate.test/top-up/complete?session_id={CHECKOUT_SESSION_ID}',
      line_items: [{ quantity: 1, price_data: { currency, unit_amount: 900, product_data: { name: 'x' } } }],
      metadata,
    });
    await checkout.pay(session.url ?? '');
    return session.id;
  };
  const ours = {
    instance_id: instance.id,
    top_up_id: '7b1f0f9e-0000-4000-8000-000000000000',
    account_id: '8b1f0f9e-0000-4000-8000-000000000000',
  };
  const sessions: [string, string][] = [
    ['unknown', 'cs_test_unknown'],
    ['no id at all', '../../v1/customers'],
    ['of another service', new URLSearchParams((await buy(other, checkout)).split('?')[1]).get('session_id') ?? ''],
    ['without our metadata', await open('usd', {})],
    ['in another currency', await open('eur', ours)],
    ['with a broken account', await open('usd', { ...ours, account_id: 'x' })],
  ];
  for (const [name, id] of sessions) {
    const page = await gateway.call(`/top-up/complete?session_id=${encodeURIComponent(id)}`);
    t.equal(page.status, 502, name);
    t.match(page.headers.get('content-type') ?? '', /text\/html/);
  }
  t.equal((await gateway.db.selectFrom('transfer').select('id').execute()).length, 0);
  t.equal((await gateway.call('/top-up/complete')).status, 400);
  t.equal((await gateway.call('/top-up/complete?session_id=')).status, 400);
});

test('processor errors are 502 PAYMENT_ERROR without their details', async (t) => {
  let answer: { status: number; body: string } = { status: 500, body: '' };
  const origin = await serve(t, (_request, response) => {
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.body);
  });
  const gateway = await startGateway(t, { STRIPE_API_BASE: origin, CHECKOUT_ORIGIN: origin });
  const answers = [
    { status: 500, body: '{"error":{"type":"api_error","message":"secret detail"}}' },
    { status: 401, body: '{"error":{"type":"invalid_request_error","message":"secret detail"}}' },
    { status: 404, body: '{"nothing":"secret detail"}' },
    { status: 200, body: '{"id":"cs_test_1","url":null}' },
    { status: 200, body: 'secret detail' },
    { status: 200, body: '{}' },
  ];
  for (answer of answers) {
    const reply = await gateway.call('/top-up', form({}));
    t.equal(reply.status, 502, answer.body);
    t.equal(reply.json.error.code, 'PAYMENT_ERROR');
    t.notMatch(reply.text, /secret detail/);
    const page = await gateway.call('/top-up/complete?session_id=cs_test_1');
    t.equal(page.status, 502, answer.body);
    t.notMatch(page.text, /secret detail/);
  }
});

test('a checkout redirects only to CHECKOUT_ORIGIN over http(s), else 502', async (t) => {
  let session: object = {};
  const STRIPE_API_BASE = await serve(t, (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(session));
  });
  const gateways = {
    'http:': await startGateway(t, { STRIPE_API_BASE, CHECKOUT_ORIGIN: 'http://checkout.test' }),
    'https:': await startGateway(t, { STRIPE_API_BASE, CHECKOUT_ORIGIN: 'https://checkout.test' }),
  };
  const cases: [url: string, protocol: keyof typeof gateways, location?: string][] = [
    ['javascript:alert(1)', 'https:'],
    ['JavaScript:alert(1)', 'http:'],
    ['data:text/html,pay', 'http:'],
    ['file:///etc/passwd', 'https:'],
    ['/pay', 'http:'],
    ['http://checkout.test/pay', 'https:'],
    ['http://checkout.test/pay', 'http:', 'http://checkout.test/pay'],
    ['https://checkout.test/pay', 'http:', 'https://checkout.test/pay'],
    ['https://checkout.test/pay#key', 'https:', 'https://checkout.test/pay#key'],
    ['https://checkout.test/a\nb', 'https:', 'https://checkout.test/ab'],
  ];
  for (const [index, [url, protocol, location]] of cases.entries()) {
    session = { id: `cs_test_${index}`, url };
    const reply = await gateways[protocol].call('/top-up', form({}));
    t.equal(reply.status, location === undefined ? 502 : 303, `${url} for ${protocol}`);
    t.equal(reply.headers.get('location'), location ?? null);
    if (location === undefined) t.equal(reply.json.error.code, 'PAYMENT_ERROR');
  }
  session = { id: 'cs_\0', url: 'https://checkout.test/pay' };
  t.equal((await gateways['https:'].call('/top-up', form({}))).status, 502, 'an id that the buyer can not return with');
});

// Payments from a bank account: the checkout is complete at once, and the money arrives days later, or never.

const DAY = 24 * HOUR;
const back = (gateway: Gateway, session: string) => gateway.call(`/top-up/complete?session_id=${session}`);

async function sent(t: Test, fields: Record<string, string> = {}) {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway, fields);
  await checkout.pay(session, 'bank');
  return { checkout, gateway, session };
}

test('the page of a pending bank payment asks for no second payment', async (t) => {
  const { checkout, gateway, session } = await sent(t);
  const page = await back(gateway, session);
  t.equal(page.status, 402);
  t.match(page.text, /<h1>The payment is still being processed<\/h1>/);
  t.match(page.text, /Do not pay again/);
  t.strictSame(links(page.text), [''], 'only to look again');
  t.equal((await runTurn(gateway, 'top_ups')).count, 0);

  await checkout.endBankPayment(session, 'arrived');
  t.match((await back(gateway, session)).text, /\$7\.00 was added/);
  t.strictSame(await audit(gateway.db), []);
});

test('a payment with an unreadable state counts as pending', async (t) => {
  const { checkout, gateway, session } = await sent(t);
  const forbidden = answerWith(403, '{"error":{"type":"invalid_request_error","message":"no permission"}}');
  checkout.fault = (method, path, response) =>
    path.startsWith('/v1/payment_intents/') && forbidden(method, path, response);
  t.match((await back(gateway, session)).text, /Do not pay again/);
});

test('a refused bank payment can be made again for the same account', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const account = await gateway.fund(500);
  const session = await open(gateway, { accountId: account });
  await checkout.pay(session, 'bank');
  await checkout.endBankPayment(session, 'refused');
  const page = await back(gateway, session);
  t.equal(page.status, 402);
  t.match(page.text, /The payment failed or was canceled/);
  const [again = assert.fail()] = links(page.text);
  t.match((await gateway.call(again)).text, /The account of your earlier purchase/);
});

test('the page of an unpaid session leads back to amount, account and challenge', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const account = await gateway.fund(500);
  const session = await open(gateway, { accountId: account, challengeId: 'from-a-402' });
  for (const said of [/has not been paid/, /has expired. Nothing was charged/]) {
    const page = await back(gateway, session);
    t.equal(page.status, 402);
    t.equal(page.headers.get('cache-control'), 'private, no-store');
    t.match(page.text, said);
    const launcher = await gateway.call(links(page.text).at(-1) ?? '');
    t.match(launcher.text, /The account of your earlier purchase/);
    t.match(launcher.text, /value="700" checked/);
    t.match(launcher.text, /name="challengeId" value="from-a-402"/);
    await checkout.stripe.checkout.sessions.expire(session).catch(() => {});
  }
});

/** What becomes of a purchase whose session's id never reached the database, and how its row is then. */
const LOST: Readonly<Record<string, (gateway: Gateway, session: string) => Promise<unknown>>> = {
  'before it was recorded': ({ db }, session) =>
    sql`update top_up set state = 'opening', session_id = null where session_id = ${session}`.execute(db),
  'and its row has ended': ({ db }, session) =>
    sql`update top_up set state = 'expired', session_id = null where session_id = ${session}`.execute(db),
  'with its row in a restore': ({ db }, session) => sql`delete from top_up where session_id = ${session}`.execute(db),
};

test('R16: a session whose id was lost is credited once paid', async (t) => {
  for (const [name, lose] of Object.entries(LOST)) {
    const { checkout, gateway, session } = await sent(t, { challengeId: 'from-a-402' });
    const { id, account_id } = await purchase(gateway, session);
    await lose(gateway, session);
    t.equal((await runTurn(gateway, 'checkout_sweep')).outcome, 'done');
    const found = await purchase(gateway, session);
    const { state, account_id: account, amount_cents: cents, challenge_id: challenge } = found;
    t.strictSame([found.id, state, account, cents, challenge], [id, 'open', account_id, 700, 'from-a-402'], name);

    // The list is read past it, and a day is over, when the money arrives.
    await sql`update processor_list set read_until = now() where name = 'sessions'`.execute(gateway.db);
    await age(gateway, session, 9 * DAY);
    await checkout.endBankPayment(session, 'arrived');
    t.equal((await runTurn(gateway, 'top_ups')).count, 1, name);
    t.equal(await gateway.balance(account_id), 7_000_000n);
    t.strictSame(await audit(gateway.db), []);
    const processor = new Processor(checkout.secretKey, checkout.apiBase);
    t.strictSame((await auditPurchases(gateway.db, processor, () => {})).findings, []);
  }
});

test('R16: a complete but unpaid session of another service is ignored', async (t) => {
  const { checkout, gateway, session } = await sent(t);
  const other = await startGateway(t, settings(checkout));
  await sql`update instance set id = gen_random_uuid()`.execute(other.db);
  t.equal((await runTurn(other, 'checkout_sweep')).outcome, 'done');
  t.strictSame(await other.db.selectFrom('top_up').selectAll().execute(), []);
  t.equal((await purchase(gateway, session)).state, 'open');
});

test('sessions that cannot be credited do not block others', async (t) => {
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
  t.equal(swept.outcome, 'failed', 'which is logged');
  t.equal(await gateway.balance(account_id), 7_000_000n);
  const list = await gateway.db
    .selectFrom('processor_list')
    .select('pass_started_at')
    .where('name', '=', 'sessions')
    .executeTakeFirstOrThrow();
  t.equal(list.pass_started_at, null, 'the list is read to its end');
});

test('a session already recorded for another purchase is refused', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  await checkout.pay(session);
  await sql`delete from top_up where session_id = ${session}`.execute(gateway.db);
  await sql`
    insert into top_up (state, account_id, amount_cents, session_id, credited_at)
    values ('credited', gen_random_uuid(), 700, ${session}, now())`.execute(gateway.db);
  t.equal((await back(gateway, session)).status, 500);
});
