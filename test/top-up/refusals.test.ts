import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'tap';
import { startGateway } from '../support/gateway.ts';
import { buy, form, shop } from './shop.ts';

test('R15: an account that does not exist is refused before any session', async (t) => {
  const { gateway, checkout } = await shop(t);
  const accountId = '6b1f0f9e-0000-4000-8000-000000000000';
  const structured = await gateway.call('/top-up', form({ accountId }));
  assert.equal(structured.status, 400);
  assert.equal(structured.json.error.code, 'INVALID_REQUEST');
  assert.equal(structured.json.error.details.field, 'accountId');
  const request = form({ accountId });
  const page = await gateway.call('/top-up', { ...request, headers: { ...request.headers, accept: 'text/html,*/*' } });
  assert.equal(page.status, 400);
  assert.match(page.headers.get('content-type') ?? '', /text\/html/);
  assert.equal((await checkout.stripe.checkout.sessions.list()).data.length, 0);
});

test('forms that can not be read are refused', async (t) => {
  const { gateway } = await shop(t);
  const type = { 'content-type': 'application/x-www-form-urlencoded' };
  const cases: [object, number][] = [
    [{ method: 'POST', json: {} }, 415],
    [{ method: 'POST', headers: type, body: 'amount=%zz' }, 400],
    [{ method: 'POST', headers: type, body: 'amount=500&amount=900' }, 400],
    [{ method: 'POST', headers: type, body: `accountId=${'a'.repeat(101)}` }, 400],
  ];
  for (const [request, status] of cases) assert.equal((await gateway.call('/top-up', request)).status, status);
  assert.equal((await gateway.call('/top-up', { method: 'POST' })).status, 303, 'the form is optional');
});

test('a challenge that is no well-formed text is refused, and makes no row and no session', async (t) => {
  const { gateway, checkout } = await shop(t);
  const type = { 'content-type': 'application/x-www-form-urlencoded' };
  // U+0000, and two lone surrogates as some encoders write them.
  for (const text of ['a%00b', '%00', '%ED%A0%80', '%ED%BF%BF']) {
    const posted = await gateway.call('/top-up', { method: 'POST', headers: type, body: `challengeId=${text}` });
    assert.equal(posted.status, 400, text);
    assert.equal(posted.json.error.code, 'INVALID_REQUEST');
    const shown = await gateway.call(`/top-up?challenge=${text}`);
    assert.equal(shown.status, 400, text);
    assert.equal(shown.json.error.code, 'INVALID_REQUEST');
  }
  const body = 'challengeId=%00';
  const page = await gateway.call('/top-up', { method: 'POST', headers: { ...type, accept: 'text/html' }, body });
  assert.equal(page.status, 400);
  assert.match(page.headers.get('content-type') ?? '', /text\/html/);
  assert.equal((await gateway.db.selectFrom('top_up').select('id').execute()).length, 0);
  assert.equal((await checkout.stripe.checkout.sessions.list()).data.length, 0);
});

test('an unpaid session is 402 and credits nothing', async (t) => {
  const { gateway, checkout } = await shop(t);
  await gateway.call('/top-up', form({}));
  const [session] = (await checkout.stripe.checkout.sessions.list()).data;
  const page = await gateway.call(`/top-up/complete?session_id=${session?.id}`);
  assert.equal(page.status, 402);
  await checkout.stripe.checkout.sessions.expire(session?.id ?? '');
  assert.equal((await gateway.call(`/top-up/complete?session_id=${session?.id}`)).status, 402);
  assert.equal((await gateway.db.selectFrom('account').select('id').where('kind', '=', 'card').execute()).length, 0);
});

test('R16, R54: unknown, foreign and other-currency sessions are 502 and credit nothing', async (t) => {
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
    assert.equal(page.status, 502, name);
    assert.match(page.headers.get('content-type') ?? '', /text\/html/);
  }
  assert.equal((await gateway.db.selectFrom('transfer').select('id').execute()).length, 0);
  assert.equal((await gateway.call('/top-up/complete')).status, 400);
  assert.equal((await gateway.call('/top-up/complete?session_id=')).status, 400);
});

test('processor errors are 502, and nothing is lost', async (t) => {
  let answer: { status: number; body: string } = { status: 500, body: '' };
  const processor = createServer((_request, response) => {
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.body);
  }).listen(0, '127.0.0.1');
  await once(processor, 'listening');
  t.teardown(() => processor.close());
  const origin = `http://127.0.0.1:${(processor.address() as AddressInfo).port}`;
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
    assert.equal(reply.status, 502, answer.body);
    assert.equal(reply.json.error.code, 'PAYMENT_ERROR');
    assert.doesNotMatch(reply.text, /secret detail/);
    const page = await gateway.call('/top-up/complete?session_id=cs_test_1');
    assert.equal(page.status, 502, answer.body);
    assert.doesNotMatch(page.text, /secret detail/);
  }
});

test('a checkout is gone to only by http(s) as CHECKOUT_ORIGIN has it; any other address is 502', async (t) => {
  let session: object = {};
  const processor = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(session));
  }).listen(0, '127.0.0.1');
  await once(processor, 'listening');
  t.teardown(() => processor.close());
  const STRIPE_API_BASE = `http://127.0.0.1:${(processor.address() as AddressInfo).port}`;
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
    assert.equal(reply.status, location === undefined ? 502 : 303, `${url} for ${protocol}`);
    assert.equal(reply.headers.get('location'), location ?? null);
    if (location === undefined) assert.equal(reply.json.error.code, 'PAYMENT_ERROR');
  }
  session = { id: 'cs_\0', url: 'https://checkout.test/pay' };
  assert.equal(
    (await gateways['https:'].call('/top-up', form({}))).status,
    502,
    'an id that the buyer can not return with',
  );
});
