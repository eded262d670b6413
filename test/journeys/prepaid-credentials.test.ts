import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { type Hex, hexToBytes, numberToHex, toHex } from 'viem';
import { PREPAID_SIGNING } from '../../src/payments/x402/signed-types.ts';
import { testDatabase } from '../support/database.ts';
import { controlDatabaseClock } from '../support/database-clock.ts';
import { type Call, type Reply, startGateway } from '../support/gateway.ts';
import {
  balanceHeaders,
  fundedWallet,
  HELLO,
  noncesOf,
  startPrepaidGateway,
  TTS,
  withCredential,
  withHeaders,
} from '../support/prepaid.ts';
import { lockRows } from '../support/row-lock.ts';
import { openAiError } from '../support/stub-upstream.ts';

/** Of the tests that need no settings of their own. */
const gateway = await startPrepaidGateway(t);

/** A gateway whose database's clock the test moves, from its first second of 2030. */
async function startClocked(t: Test) {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  const now = BigInt(Date.parse('2030-01-01T00:00:00Z') / 1000);
  return { clock, now, databaseUrl, gateway: await startPrepaidGateway(t, {}, { databaseUrl }) };
}

const QUOTED = { textLength: 1, textSha256: 'a'.repeat(64) };
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

test('R30: a missing or malformed prepaid header is 400 and is named', async (t) => {
  const { sign, balance } = await fundedWallet(gateway, 100_000n);
  const signed = await sign(TTS, HELLO);
  const before = await noncesOf(gateway);
  for (const name of PREPAID_SIGNING.headers) {
    const missing = await gateway.call(TTS, withHeaders(signed, { [name]: undefined }));
    t.strictSame([missing.status, missing.json.error.code], [400, 'INVALID_REQUEST']);
    t.strictSame([missing.json.error.details.field, missing.headers.get('payment-required')], [name, null]);
  }
  const malformed: Record<string, string[]> = {
    'x-x402-account': ['', `0x${'g'.repeat(40)}`, `${signed.headers?.['x-x402-account']}0`],
    'x-x402-nonce': ['', 'a b', 'é', 'n'.repeat(129)],
    'x-x402-expiry': ['', '-1', '1.5', '0x10', '9'.repeat(30)],
    'x-x402-max-amount': ['', '-1', '1e3', String(2n ** 256n)],
    'x-x402-signature': ['', '0x', '0xzz', '0x123', `0x${'00'.repeat(64)}`],
  };
  for (const [name, values] of Object.entries(malformed)) {
    for (const value of values) {
      const reply = await gateway.call(TTS, withHeaders(signed, { [name]: Buffer.from(value).toString('latin1') }));
      t.strictSame([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], `${name}: ${value}`);
      t.equal(reply.json.error.details.field, name);
    }
  }
  t.strictSame([await balance(), await noncesOf(gateway)], [100_000n, before]);
});

test('R30: a changed request or a signature of no single key is 401', async (t) => {
  const { domain } = gateway;
  const { wallet, sign, balance } = await fundedWallet(gateway, 100_000n);
  const other = await fundedWallet(gateway, 100_000n);
  const get = `${TTS}?text=Hello+world`;
  const signed = await sign(TTS, HELLO, { max: 1000n });
  const signature = signed.headers?.['x-x402-signature'] as Hex;
  const raw = hexToBytes(signature);
  const [r, s, v] = [signature.slice(2, 66), BigInt(toHex(raw.slice(32, 64))), raw[64] as number];
  const twin = `0x${r}${numberToHex(ORDER - s, { size: 32 }).slice(2)}${v === 27 ? '1c' : '1b'}`;
  const json = { 'content-type': 'application/json' };
  const spaced = '{"text": "Hello world"}';
  const contract = { ...domain, verifyingContract: wallet.address };
  const mutations: [string, string, Call][] = [
    [
      'method',
      get,
      { headers: (await sign(get, { ...HELLO, json: undefined, body: 'text=Hello%20world' })).headers ?? {} },
    ],
    ['path', TTS, await withCredential(wallet, domain, '/x402/tts/', HELLO)],
    ['query', `${TTS}?text=Hello+worle`, await sign(get)],
    ['a body byte', TTS, { ...signed, json: { text: 'Hello worle' } }],
    ['white space of the body', TTS, { method: 'POST', headers: { ...signed.headers, ...json }, body: spaced }],
    ['max amount', TTS, withHeaders(signed, { 'x-x402-max-amount': '1001' })],
    ['nonce', TTS, withHeaders(signed, { 'x-x402-nonce': `${signed.headers?.['x-x402-nonce']}0` })],
    ['expiry', TTS, withHeaders(signed, { 'x-x402-expiry': String(Number(signed.headers?.['x-x402-expiry']) + 1) })],
    ['account', TTS, withHeaders(signed, { 'x-x402-account': other.wallet.address })],
    ['chain id', TTS, await withCredential(wallet, { ...domain, chainId: 84532 as 8453 }, TTS, HELLO)],
    ['verifying contract', TTS, await withCredential(wallet, contract, TTS, HELLO)],
    ['domain name', TTS, await withCredential(wallet, { ...domain, name: 'Other-Prepaid' }, TTS, HELLO)],
    ['domain version', TTS, await withCredential(wallet, { ...domain, version: '2' as '1' }, TTS, HELLO)],
    ['high-s twin', TTS, withHeaders(signed, { 'x-x402-signature': twin })],
    ['recovery id', TTS, withHeaders(signed, { 'x-x402-signature': `${signature.slice(0, -2)}1d` })],
    ['one byte more', TTS, withHeaders(signed, { 'x-x402-signature': `${signature}00` })],
    ['a contract signature', TTS, withHeaders(signed, { 'x-x402-signature': `0x${'00'.repeat(300)}` })],
    ['no point of the curve', TTS, withHeaders(signed, { 'x-x402-signature': `0x${'00'.repeat(64)}1b` })],
  ];
  const [nonces, spoken] = [await noncesOf(gateway), gateway.upstream.requests.length];
  for (const [what, path, call] of mutations) {
    const reply = await gateway.call(path, call);
    t.strictSame([reply.status, reply.json?.error.code], [401, 'UNAUTHORIZED'], what);
    t.strictSame(balanceHeaders(reply), [null, null], `${what}: nothing is told of the balance`);
  }
  t.strictSame([await balance(), await other.balance()], [100_000n, 100_000n]);
  t.strictSame([await noncesOf(gateway), gateway.upstream.requests.length], [nonces, spoken]);
  t.equal((await gateway.call(TTS, signed)).status, 200, 'the original is still good');
  const upper = `0x${wallet.address.slice(2).toUpperCase()}`;
  const spelt = withHeaders(await sign(TTS, HELLO), { 'x-x402-account': upper });
  t.equal((await gateway.call(TTS, spelt)).status, 200, 'in any letter case');
});

test('a compact signature of 64 bytes is 400 and told apart from a malformed one', async (t) => {
  const { wallet, sign } = await fundedWallet(gateway, 100_000n);
  const account = `/x402/accounts/${wallet.address}`;
  for (const [path, call] of [[TTS, await sign(TTS, HELLO)] as const, [account, await sign(account)] as const]) {
    const compact = String(call.headers?.['x-x402-signature']).slice(0, 130);
    const reply = await gateway.call(path, withHeaders(call, { 'x-x402-signature': compact }));
    const { code, message, details } = reply.json.error;
    t.strictSame([reply.status, code, details.rule], [400, 'INVALID_REQUEST', '65 bytes']);
    t.match(message, /^x-x402-signature has 64 bytes, .+ Send the 65 bytes r, s and v\. You were not charged\.$/);
    const other = await gateway.call(path, withHeaders(call, { 'x-x402-signature': compact.slice(0, -2) }));
    t.strictSame([other.status, other.json.error.details.rule], [400, 'pattern']);
  }
});

test("R30, R34: the expiry is 1 to 125 seconds ahead by the database's clock", async (t) => {
  const { clock, now, gateway } = await startClocked(t);
  const rich = await fundedWallet(gateway, 100_000n);
  const poor = await fundedWallet(gateway, 0n);
  const status = async ({ sign }: typeof rich, expiry: bigint) =>
    (await gateway.call(TTS, await sign(TTS, HELLO, { expiry }))).status;
  for (const [ahead, expected] of [
    [-1n, 400],
    [0n, 400],
    [1n, 200],
    [125n, 200],
    [126n, 400],
    [10n ** 12n, 400],
  ] as const) {
    t.equal(await status(rich, now + ahead), expected, `${ahead} s ahead`);
    t.equal(await status(poor, now + ahead), expected === 200 ? 402 : 400, `${ahead} s ahead, no account`);
  }
  const late = await rich.sign(TTS, HELLO, { expiry: now + 100n });
  await clock.advance('99.999 seconds');
  t.equal((await gateway.call(TTS, late)).status, 200);
  const later = await rich.sign(TTS, HELLO, { expiry: now + 100n });
  await clock.advance('0.001 seconds');
  const refused = await gateway.call(TTS, later);
  t.strictSame([refused.status, refused.json.error.details.field], [400, 'x-x402-expiry']);
  t.strictSame(balanceHeaders(refused), [null, null]);
  const junk = withHeaders(later, { 'x-x402-nonce': 'another' });
  t.equal((await gateway.call(TTS, junk)).status, 400, 'the expiry is told before the signature');
  const path = `/x402/accounts/${rich.wallet.address}`;
  t.equal((await gateway.call(path, await rich.sign(path, {}, { expiry: now }))).status, 400);
});

test('R30: an expiry too far ahead is refused even if counting the refusal takes time', async (t) => {
  const { clock, now, databaseUrl, gateway } = await startClocked(t);
  const { wallet, sign } = await fundedWallet(gateway, 100_000n);
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO, { expiry: now }))).status, 400, 'the window is begun');
  const calls: [string, Call][] = [
    [TTS, HELLO],
    [`/x402/accounts/${wallet.address}`, {}],
  ];
  for (const [seconds, [path, call]] of calls.entries()) {
    const early = await sign(path, call, { expiry: now + 126n + BigInt(seconds) });
    const window = await lockRows(t, databaseUrl, sql`select from rate_window for update`);
    const answer = gateway.call(path, early);
    await window.untilWaiting(1);
    await clock.advance('1 second');
    await window.release();
    const reply = await answer;
    t.strictSame([reply.status, reply.json.error.details.field], [400, 'x-x402-expiry'], path);
  }
});

test('R30: a signature names the current or a retiring payee, and no other', async (t) => {
  const address = (digit: string): Hex => `0x${digit.repeat(40)}`;
  const payees = [
    `${address('1')}:current`,
    `${address('2')}:retiring`,
    `${address('3')}:next`,
    `${address('4')}:retiring:2020-01-01:2020-02-01`,
  ];
  const gateway = await startPrepaidGateway(t, { X402_PAY_TO: payees.join() });
  const { wallet } = await fundedWallet(gateway, 100_000n);
  for (const [payee, expected] of Object.entries({ '1': 200, '2': 200, '3': 401, '4': 401, '5': 401 })) {
    const domain = { ...gateway.domain, verifyingContract: address(payee) };
    t.equal((await gateway.call(TTS, await withCredential(wallet, domain, TTS, HELLO))).status, expected, payee);
  }
});

test('R36: headers of two flows are refused before verification', async (t) => {
  const { wallet, sign, balance } = await fundedWallet(gateway, 1000n);
  const account = await gateway.fund(500);
  const own = `/x402/accounts/${wallet.address}`;
  for (const [path, call] of [
    [TTS, withHeaders(await sign(TTS, HELLO), { 'payment-signature': 'e30=' })],
    [TTS, withHeaders(await sign(TTS, HELLO), { 'x-credit-account': account })],
    [own, withHeaders(await sign(own), { 'x-credit-account': account })],
    [own, withHeaders(await sign(own), { 'payment-signature': 'e30=' })],
    ['/tts', withHeaders(await sign('/tts', HELLO), { 'x-credit-account': account })],
    ['/tts', await sign('/tts', HELLO)],
    [TTS, withHeaders(HELLO, { 'x-credit-account': account })],
    [TTS, withHeaders(HELLO, { 'x-credit-account': account, 'payment-signature': 'e30=' })],
    ['/x402/tts/quote', { method: 'POST', json: QUOTED, headers: { 'x-credit-account': account } }],
  ] as const) {
    const reply = await gateway.call(path, call);
    t.strictSame([reply.status, reply.json.error.details.rule], [400, 'one flow'], path);
  }
  t.equal(await balance(), 1000n);
});

test('R7: errors in the request are reported before the credential is checked', async (t) => {
  const { sign } = await fundedWallet(gateway, 1000n);
  for (const [json, code] of [
    [{ text: ' ' }, 'INVALID_REQUEST'],
    [{ text: 'a', model: 'x' }, 'UNKNOWN_TTS_MODEL'],
    [{ text: 'a', voice: 'nova' }, 'INVALID_VOICE'],
    [{ text: 'a'.repeat(4097) }, 'TEXT_TOO_LONG'],
  ] as const) {
    const call = withHeaders(await sign(TTS, { method: 'POST', json }), { 'x-x402-nonce': 'another' });
    t.equal((await gateway.call(TTS, call)).json.error.code, code);
  }
  const head = await gateway.call(`${TTS}?text=a`, { ...(await sign(`${TTS}?text=a`)), method: 'HEAD' });
  t.strictSame([head.status, head.headers.get('allow')], [405, 'GET, POST, OPTIONS']);
});

test('R47: without X402_PAY_TO prepaid requests answer 503 CONFIG_ERROR', async (t) => {
  const { wallet, sign } = await fundedWallet(gateway, 0n);
  const off = await startGateway(t, { X402_PAY_TO: '', X402_FACILITATOR_URL: '' });
  const own = `/x402/accounts/${wallet.address}`;
  for (const [path, call] of [[TTS, await sign(TTS, HELLO)] as const, [own, await sign(own)] as const]) {
    const reply = await off.call(path, call);
    t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  }
});

const accountOf = (address: string) => `/x402/accounts/${address}`;

test('R31: a balance read returns the balance and does not spend the nonce', async (t) => {
  const { wallet, sign } = await fundedWallet(gateway, 1_234_567n);
  const before = await noncesOf(gateway);
  const path = accountOf(wallet.address);
  const call = await sign(path, {}, { nonce: 'read', max: 0n });
  for (let count = 0; count < 2; count += 1) {
    const { status, json, headers } = await gateway.call(path, call);
    t.equal(status, 200);
    t.strictSame(json, {
      address: wallet.address.toLowerCase(),
      balanceMicroUsd: 1_234_567,
      balanceUsd: '1.234567',
      currency: 'USD',
      refundable: false,
    });
    t.equal(headers.get('cache-control'), 'private, no-store');
  }
  t.strictSame(await noncesOf(gateway), before);
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO, { nonce: 'read' }))).status, 200);
  t.equal((await gateway.call(path, call)).json.balanceMicroUsd, 1_234_369);
});

test('R31: a balance read signs an empty query and the path as sent', async (t) => {
  const { wallet, sign } = await fundedWallet(gateway, 1000n);
  const lower = accountOf(wallet.address.toLowerCase());
  t.equal((await gateway.call(`${lower}?x=1`, await sign(lower))).status, 200);
  t.equal((await gateway.call(lower, await sign(`${lower}?x=1`, {}, { query: 'x=1' }))).status, 401);
  t.equal((await gateway.call(accountOf(wallet.address), await sign(lower))).status, 401);
});

test('a credential for another address is refused before its balance is read', async (t) => {
  const rich = await fundedWallet(gateway, 1000n);
  const { wallet, sign } = await fundedWallet(gateway, 1000n);
  const path = accountOf(rich.wallet.address);
  const forged = withHeaders(await sign(path), { 'x-x402-account': rich.wallet.address });
  const spoken = await sign(TTS, HELLO);
  for (const [at, call] of [
    [path, await sign(path)],
    [path, forged],
    [accountOf(wallet.address), { headers: spoken.headers ?? {} }],
    [accountOf(wallet.address), await withCredential(wallet, { ...gateway.domain, chainId: 1 }, path, {})],
  ] as const) {
    const reply = await gateway.call(at, call);
    t.strictSame([reply.status, reply.json.error.code], [401, 'UNAUTHORIZED']);
  }
});

test('an address without deposits is 404 for its owner and 401 for others', async (t) => {
  const { wallet, sign } = await fundedWallet(gateway, 0n);
  const other = await fundedWallet(gateway, 0n);
  const path = accountOf(wallet.address);
  const own = await gateway.call(path, await sign(path));
  t.strictSame([own.status, own.json.error.code], [404, 'NOT_FOUND']);
  t.equal((await gateway.call(path, await other.sign(path))).status, 401);
});

test('R30: a balance read without five headers or with an invalid path is 400', async (t) => {
  const { wallet, sign } = await fundedWallet(gateway, 1000n);
  const path = accountOf(wallet.address);
  t.equal((await gateway.call(path)).json.error.details.field, 'x-x402-account');
  const partial = withHeaders(await sign(path), { 'x-x402-nonce': undefined });
  t.equal((await gateway.call(path, partial)).json.error.details.field, 'x-x402-nonce');
  for (const address of ['0x12', wallet.address.slice(2), `${wallet.address}0`, 'me']) {
    const reply = await gateway.call(accountOf(address), await sign(accountOf(address)));
    t.strictSame([reply.status, reply.json.error.details.field], [400, 'address'], address);
  }
  t.equal((await gateway.call(path, await sign(path, {}, { expiry: 1n }))).status, 400);
});

test('R49: a GET is signed over the canonical query, however its URL is written', async (t) => {
  const { sign } = await fundedWallet(gateway, 100_000n);
  for (const [url, query] of [
    ['?text=Hello+world', 'text=Hello%20world'],
    ['?voice=provider-a_nova&text=a', 'text=a&voice=provider-a_nova'],
    ['?text=%48i&x=b&x=a&x=', 'text=Hi&x=&x=a&x=b'],
    ['?text=%21%27%28%29%2A&empty', "empty=&text=!'()*"],
    ['?text=a&%EF%BD%9E=1&%F0%9F%98%80=2', 'text=a&%F0%9F%98%80=2&%EF%BD%9E=1'],
    ['?text=1%2B1%3D2%26', 'text=1%2B1%3D2%26'],
  ] as const) {
    const path = `${TTS}${url}`;
    t.equal((await gateway.call(path, await sign(path, {}, { query }))).status, 200, url);
    const sent = await sign(path, {}, { query: `${query}&` });
    t.equal((await gateway.call(path, sent)).status, 401, `another query than ${url}`);
  }
  const twice = `${TTS}?text=a&text=b`;
  const refused = await gateway.call(twice, await sign(twice));
  t.strictSame([refused.status, refused.json.error.code], [400, 'INVALID_REQUEST']);
});

test('R49: one signature covers one query, also with a second question mark', async (t) => {
  const { sign, balance } = await fundedWallet(gateway, 10_000n);
  const spoken = gateway.upstream.requests.length;
  for (const [signedFor, sent, status] of [
    ['?text=a?b', '?text=a?b', 200],
    ['?text=a&x=?', '?text=a&x=?', 200],
    ['?text=a&??x=1', '?text=a&??x=1', 200],
    ['??x=1&text=a', '??x=1&text=a', 200],
    ['??x=1&text=a', '?x=1&text=a', 401],
    ['?x=?&text=%EF%BF%BDa', '?x=?&text=%EF%BF%BDa', 200],
    ['?x=?&text=%EF%BF%BDa', '?x=?&text=%FFa', 400],
    ['?x=?&text=%EF%BF%BDa', '?x=?&text=%ZZa', 400],
    ['?x=1&text=a?%FF', '?x=1&text=a?%FF', 400],
    ['#?text=a', '#?text=a', 400],
    ['?text=a', '?text=a#b', 400],
  ] as const) {
    const reply = await gateway.call(`${TTS}${sent}`, await sign(`${TTS}${signedFor}`));
    t.equal(reply.status, status, `${sent}, signed for ${signedFor}`);
  }
  const inputs = gateway.upstream.requests.slice(spoken).map(({ body }) => body?.input);
  t.strictSame(inputs, ['a?b', 'a', 'a', 'a', '\ufffda']);
  t.equal(await balance(), 10_000n - 18n * 8n);
});

test('the path and query of an absolute request target are signed (RFC 9112, 3.2.2)', async (t) => {
  const { sign, balance } = await fundedWallet(gateway, 1000n);
  const path = `${TTS}?text=a`;
  const { headers = {} } = await sign(path);
  const outgoing = request(gateway.url, { path: `http://speech.example${path}`, headers }).end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  incoming.resume();
  t.strictSame([incoming.statusCode, await balance()], [200, 982n]);
});

const remaining = ({ headers }: Reply) => headers.get('x-ratelimit-remaining');

test('R48: verified prepaid requests never take a slot', async (t) => {
  const gateway = await startPrepaidGateway(t, { RATE_LIMIT_MAX: '2' });
  const { sign } = await fundedWallet(gateway, 1000n);
  const repeated = await sign(TTS, HELLO);
  for (const [call, status] of [
    [repeated, 200],
    [repeated, 409],
    [await sign(TTS, HELLO, { max: 1n }), 402],
    [await sign(TTS, { method: 'POST', json: { text: 'a'.repeat(4000) } }), 402],
    [await sign(TTS, HELLO), 200],
  ] as const) {
    const reply = await gateway.call(TTS, call);
    t.strictSame([reply.status, remaining(reply)], [status, null]);
  }
  gateway.upstream.mode = openAiError(500);
  t.equal(remaining(await gateway.call(TTS, await sign(TTS, HELLO))), null);
});

test('R48: a failed credential costs its address a slot at each endpoint, then 429', async (t) => {
  const gateway = await startPrepaidGateway(t, { RATE_LIMIT_MAX: '5' });
  const { wallet, sign, balance } = await fundedWallet(gateway, 1000n);
  const stranger = await fundedWallet(gateway, 0n);
  const own = `/x402/accounts/${wallet.address}`;
  const unknown = `/x402/accounts/${stranger.wallet.address}`;
  const foreign = { ...gateway.domain, chainId: 1 };
  for (const [path, call, status, left] of [
    [TTS, await withCredential(wallet, foreign, TTS, HELLO), 401, '4'],
    [own, await withCredential(wallet, foreign, own, {}), 401, '3'],
    [TTS, await sign(TTS, HELLO, { expiry: 1n }), 400, '2'],
    [TTS, await stranger.sign(TTS, HELLO), 402, '1'],
    [unknown, await stranger.sign(unknown), 404, '0'],
    [TTS, await withCredential(wallet, foreign, TTS, HELLO), 429, '0'],
    [own, await withCredential(wallet, foreign, own, {}), 429, '0'],
    [TTS, await stranger.sign(TTS, HELLO), 429, '0'],
    [unknown, await stranger.sign(unknown), 429, '0'],
  ] as const) {
    const reply = await gateway.call(path, call);
    t.strictSame([reply.status, remaining(reply)], [status, left]);
    t.equal(reply.headers.get('x-ratelimit-scope'), 'ip');
  }
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200, 'whoever can sign is served');
  t.strictSame([(await gateway.call(own, await sign(own))).status, await balance()], [200, 802n]);
});

test('the edge limit counts failed and malformed prepaid requests, not verified ones', async (t) => {
  const gateway = await startPrepaidGateway(t, { EDGE_RATE_LIMIT_MAX: '3', TRUST_PROXY: '127.0.0.0/8' });
  const { wallet, sign } = await fundedWallet(gateway, 10_000n);
  const stranger = await fundedWallet(gateway, 0n);
  const own = `/x402/accounts/${wallet.address}`;
  const get = `${TTS}?text=Hello`;
  let clients = 0;
  /** Sends as a new client that has used up its minute. */
  const beyond = async (path: string, call: Call) => {
    const address = { 'x-forwarded-for': `192.0.2.${++clients}` };
    for (const used of ['/', '/tts/models', '/docs'])
      assert.equal((await gateway.call(used, { headers: address })).status, 200, used);
    const { status, headers } = await gateway.call(path, withHeaders(call, address));
    return [status, headers.get('x-ratelimit-scope')];
  };
  const refused = [429, 'edge'];
  t.strictSame(await beyond('/', {}), refused);
  t.strictSame(await beyond(own, await sign(own)), refused, 'balance reads meet the edge (R48)');
  t.strictSame(await beyond(TTS, HELLO), refused);
  t.strictSame(await beyond(TTS, await withCredential(wallet, { ...gateway.domain, chainId: 1 }, TTS, HELLO)), refused);
  t.strictSame(await beyond(TTS, await stranger.sign(TTS, HELLO)), refused);
  t.strictSame(await beyond(TTS, withHeaders(await sign(TTS, HELLO), { 'x-x402-nonce': undefined })), refused);
  t.strictSame(await beyond(TTS, { ...(await sign(TTS, HELLO)), json: { text: '' } }), refused);
  t.strictSame(await beyond(TTS, withHeaders(await sign(TTS, HELLO), { 'content-type': 'text/plain' })), refused);
  t.strictSame(await beyond(get, withHeaders(await sign(get), { 'payment-signature': 'e30=' })), refused);
  const windows = await gateway.db.selectFrom('rate_window').select('key').execute();
  t.strictSame(windows, [], 'what the edge refuses takes no slot of its address');
  t.strictSame(await beyond(TTS, await sign(TTS, HELLO)), [200, null], 'a verified one is served all the same');
  for (let count = 0; count < 10; count += 1)
    t.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200, 'none of these is counted');
  for (const path of ['/', '/tts/models', '/docs']) t.equal((await gateway.call(path)).status, 200, path);
  t.equal((await gateway.call('/')).status, 429);
  const repeated = await sign(get);
  const statuses = [];
  for (let count = 0; count < 3; count += 1) statuses.push((await gateway.call(get, repeated)).status);
  t.strictSame(statuses, [200, 429, 429], 'a replay is counted, and refused, as any other');
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 429, 'and nothing more is looked at');
});
