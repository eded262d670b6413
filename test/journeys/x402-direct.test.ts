import assert from 'node:assert/strict';
import { wrapFetchWithPayment } from '@x402/fetch';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { testChain, wallet } from '../support/chain.ts';
import { BASE_URL } from '../support/gateway.ts';
import {
  challengeOf,
  decodeHeader,
  encodePayment,
  HELLO,
  officialClient,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
} from '../support/x402.ts';

const { chain, skip } = await testChain();

test('the official client pays POST and GET; the payee has on the chain what the ledger says', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10_000n);
  const pay = wrapFetchWithPayment(fetch, officialClient(payer));
  const post = await pay(`${gateway.url}/x402/tts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: 'Hello world' }),
  });
  assert.equal(post.status, 200, await post.clone().text());
  assert.equal(post.headers.get('content-type'), 'audio/mpeg');
  assert.equal(post.headers.get('x-idempotent-replay'), 'false');
  assert.equal(post.headers.get('cache-control'), 'private, no-store');
  const get = await wrapFetchWithPayment(fetch, officialClient(payer))(`${gateway.url}/x402/tts?text=Hello%20world`);
  assert.equal(get.status, 200, await get.clone().text());
  assert.equal(await gateway.revenue(), 2n * PRICE);
  assert.equal(await usdcBalance(chain.client, payer.address), 10_000n - 2n * PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R22: an exact replay gets the same bytes and receipt, without a facilitator call', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10_000n);
  const { reply, paid } = await payFor(gateway, payer);
  assert.equal(reply.status, 200, reply.text.slice(0, 500));
  const calls = gateway.facilitator.calls.length;
  const replay = await gateway.call('/x402/tts', paid);
  assert.equal(replay.status, 200);
  assert.ok(replay.bytes.equals(reply.bytes));
  assert.equal(replay.headers.get('payment-response'), reply.headers.get('payment-response'));
  assert.equal(replay.headers.get('x-payment-identifier'), reply.headers.get('x-payment-identifier'));
  assert.equal(replay.headers.get('x-idempotent-replay'), 'true');
  assert.equal(gateway.facilitator.calls.length, calls);
  assert.equal(await timesPaid(chain, payer), 1);
  assert.equal(gateway.upstream.requests.length, 1);
});

test('a request without payment gets the challenge, in header and details, and may not be stored', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const reply = await gateway.call('/x402/tts', HELLO);
  assert.equal(reply.status, 402);
  assert.equal(reply.headers.get('cache-control'), 'no-store');
  const challenge = decodeHeader(reply.headers.get('payment-required'));
  assert.deepEqual(reply.json.error.details, challenge);
  assert.equal(challenge.error, 'payment_required');
  assert.equal(challenge.resource.url, `${BASE_URL}/x402/tts`);
  assert.equal(challenge.accepts[0].amount, String(PRICE));
  assert.equal(gateway.facilitator.calls.length, 0);
  assert.equal(gateway.upstream.requests.length, 0);
});

test('R27: the paid header is read in standard, URL-safe and unpadded Base64, as the same payment', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(gateway, '/x402/tts', HELLO));
  const standard = encodePayment({ ...payload, note: '>>>???ÿÿÿ' });
  const urlSafe = standard.replaceAll('+', '-').replaceAll('/', '_');
  const forms = [standard, urlSafe, standard.replaceAll('=', ''), urlSafe.replaceAll('=', '')];
  assert.equal(new Set(forms).size >= 2, true);
  for (const form of forms) {
    assert.equal((await gateway.call('/x402/tts', withPayment(HELLO, form))).status, 200);
  }
  assert.equal(await gateway.revenue(), PRICE);
});

test('what is no payment is 400 INVALID_PAYMENT_PAYLOAD without a facilitator call', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(gateway, '/x402/tts', HELLO));
  const { authorization, signature } = payload.payload;
  const hostile = { pattern: '^(a+)+$', $ref: 'http://127.0.0.1:1/x' };
  const junk: unknown[] = [
    'junk',
    '',
    null,
    [],
    [payload],
    {},
    { x402Version: 1, scheme: 'exact', network: 'base', payload: payload.payload },
    { ...payload, extensions: { 'payment-identifier': { info: { required: true }, schema: hostile } } },
    { ...payload, extensions: undefined },
    { ...payload, payload: { signature, permit2Authorization: authorization } },
    { ...payload, padding: 'x'.repeat(30_000) },
  ];
  for (const value of junk) {
    const header = typeof value === 'string' ? value : encodePayment(value);
    const reply = await gateway.call('/x402/tts', withPayment(HELLO, header));
    assert.deepEqual([reply.status, reply.json.error.code], [400, 'INVALID_PAYMENT_PAYLOAD'], header.slice(0, 100));
  }
  assert.equal(gateway.facilitator.calls.length, 0);
  assert.deepEqual(await gateway.db.selectFrom('x402_payment').select('id').execute(), []);
  const schema = {
    ...payload.extensions,
    'payment-identifier': { info: { id: 'pay_0123456789abcdef' }, schema: hostile },
  };
  assert.equal((await gateway.call('/x402/tts', withPayment(HELLO, { ...payload, extensions: schema }))).status, 200);
  const forwarded = gateway.facilitator.calls[0]?.paymentPayload.extensions?.['payment-identifier'];
  assert.ok(!JSON.stringify(forwarded).includes('127.0.0.1:1'), 'a client-sent schema is not passed on');
});

test('R5: 1500 CJK characters by GET together with a full PAYMENT-SIGNATURE are served', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const text = '語'.repeat(1500);
  const path = `/x402/tts?text=${encodeURIComponent(text)}`;
  const { reply } = await payFor(gateway, await wallet(chain.client, 100_000n), {}, path);
  assert.equal(reply.status, 200, reply.text.slice(0, 300));
  assert.equal(gateway.upstream.requests[0]?.body?.input, text);
  assert.equal(await gateway.revenue(), 27_000n);
});

test('R36: headers of two flows are refused before anything is verified', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(gateway, '/x402/tts', HELLO));
  const address = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
  const mixtures = [
    { 'x-credit-account': 'x' },
    { 'x-x402-account': address, 'payment-signature': encodePayment(payload) },
    { 'x-credit-account': 'x', 'payment-signature': encodePayment(payload) },
  ];
  for (const headers of mixtures) {
    const reply = await gateway.call('/x402/tts', { ...HELLO, headers });
    assert.deepEqual([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST']);
  }
  assert.equal(gateway.facilitator.calls.length, 0);
});

test('R51: HEAD is 405 with allow, and text/plain is 415', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const head = await gateway.call('/x402/tts?text=x', { method: 'HEAD' });
  assert.deepEqual([head.status, head.headers.get('allow')], [405, 'GET, POST, OPTIONS']);
  const plain = await gateway.call('/x402/tts', {
    method: 'POST',
    body: 'x',
    headers: { 'content-type': 'text/plain' },
  });
  assert.deepEqual([plain.status, plain.json.error.code], [415, 'UNSUPPORTED_CONTENT_TYPE']);
});

test('R28: an authorization that ends too soon or too late, or is not valid yet, is refused before any call', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, PRICE);
  const payload = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  const now = Math.floor(Date.now() / 1000);
  const cases: [object, string][] = [
    [{ validBefore: String(now + 10) }, 'authorization_expires_too_soon'],
    [{ validBefore: String(now + 300) }, 'authorization_valid_for_too_long'],
    [{ validBefore: String(2n ** 256n - 1n) }, 'authorization_valid_for_too_long'],
    [{ validAfter: String(now + 60) }, 'authorization_not_yet_valid'],
    [{ to: payer.address }, 'authorization_to_another_payee'],
    [{ value: '1' }, 'authorization_of_another_amount'],
  ];
  for (const [change, reason] of cases) {
    const authorization = { ...(payload.payload.authorization as object), ...change };
    const call = withPayment(HELLO, { ...payload, payload: { ...payload.payload, authorization } });
    const reply = await gateway.call('/x402/tts', call);
    assert.deepEqual([reply.status, reply.json.error.details.error], [402, reason]);
  }
  assert.equal(gateway.facilitator.calls.length, 0);
});

test('R58: without X402_RPC_URL direct payment and its challenge answer 503 CONFIG_ERROR', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: '' });
  for (const call of [HELLO, withPayment(HELLO, 'x')]) {
    const reply = await gateway.call('/x402/tts', call);
    assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  }
});

test('R45: a payee that retires is still paid by who holds its challenge', { skip }, async (t) => {
  const before = await startX402Gateway(t, chain);
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(before, '/x402/tts', HELLO));
  const other = '0xcA11bde05977b3631167028862bE2a173976CA11';
  const retired = await startX402Gateway(t, chain, { X402_PAY_TO: `${other},${before.payTo}:retiring::2020-01-01` });
  assert.equal((await retired.call('/x402/tts', withPayment(HELLO, payload))).status, 402);
  const retiring = await startX402Gateway(t, chain, { X402_PAY_TO: `${other},${before.payTo}:retiring` });
  assert.equal((await retiring.call('/x402/tts', withPayment(HELLO, payload))).status, 200);
  assert.equal(await before.revenue(), PRICE);
});

test('R48: paid retries and junk payments take a slot of the IP, the unpaid challenge takes none', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, { RATE_LIMIT_MAX: '3' });
  for (let count = 0; count < 5; count++) {
    const unpaid = await gateway.call('/x402/tts', HELLO);
    assert.deepEqual([unpaid.status, unpaid.headers.get('x-ratelimit-limit')], [402, null]);
  }
  const junk = await gateway.call('/x402/tts', withPayment(HELLO, 'junk'));
  assert.deepEqual([junk.status, junk.headers.get('x-ratelimit-remaining')], [400, '2']);
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
  assert.deepEqual([reply.status, reply.headers.get('x-ratelimit-remaining')], [200, '1']);
  assert.equal(reply.headers.get('x-ratelimit-scope'), 'ip');
  assert.equal((await gateway.call('/x402/tts', paid)).status, 200);
  const refused = await gateway.call('/x402/tts', paid);
  assert.deepEqual([refused.status, refused.json.error.code], [429, 'RATE_LIMITED']);
  assert.ok(Number(refused.headers.get('retry-after')) > 0);
});
