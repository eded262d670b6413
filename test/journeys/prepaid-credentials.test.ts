import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { type Hex, hexToBytes, numberToHex, toHex } from 'viem';
import { PREPAID } from '../../src/x402/prepaid-terms.ts';
import { testDatabase } from '../support/database.ts';
import { controlDatabaseClock } from '../support/database-clock.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import {
  depositor,
  HELLO,
  moneyOf,
  noncesOf,
  startPrepaidGateway,
  TTS,
  withCredential,
  withHeaders,
} from '../support/prepaid.ts';
import { lockRows } from '../support/row-lock.ts';

const QUOTED = { textLength: 1, textSha256: 'a'.repeat(64) };
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

test('R30: all five headers or none; a missing or malformed one is 400 and names itself', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign, balance } = await depositor(gateway, 100_000n);
  const signed = await sign(TTS, HELLO);
  for (const name of PREPAID.headers) {
    const missing = await gateway.call(TTS, withHeaders(signed, { [name]: undefined }));
    assert.deepEqual([missing.status, missing.json.error.code], [400, 'INVALID_REQUEST']);
    assert.deepEqual([missing.json.error.details.field, missing.headers.get('payment-required')], [name, null]);
  }
  const malformed: Record<string, string[]> = {
    'x-x402-account': ['', '0x12', 'me', `0x${'g'.repeat(40)}`, `${signed.headers?.['x-x402-account']}0`],
    'x-x402-nonce': ['', 'a b', 'é', 'n'.repeat(129)],
    'x-x402-expiry': ['', 'soon', '-1', '1.5', '0x10', '9'.repeat(30)],
    'x-x402-max-amount': ['', '-1', '1.5', '1e3', String(2n ** 256n)],
    'x-x402-signature': ['', '0x', 'abc', '0xzz', '0x123', `0x${'00'.repeat(64)}`],
  };
  for (const [name, values] of Object.entries(malformed)) {
    for (const value of values) {
      const reply = await gateway.call(TTS, withHeaders(signed, { [name]: Buffer.from(value).toString('latin1') }));
      assert.deepEqual([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], `${name}: ${value}`);
      assert.equal(reply.json.error.details.field, name);
    }
  }
  assert.deepEqual([await balance(), await noncesOf(gateway)], [100_000n, []]);
});

test('R30: any mutation of what is signed is 401, and so are signatures that no single key made', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { domain } = gateway;
  const { wallet, sign, balance } = await depositor(gateway, 100_000n);
  const other = await depositor(gateway, 100_000n);
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
  for (const [what, path, call] of mutations) {
    const reply = await gateway.call(path, call);
    assert.deepEqual([reply.status, reply.json?.error.code], [401, 'UNAUTHORIZED'], what);
    assert.deepEqual(moneyOf(reply), [null, null], `${what}: nothing is told of the balance`);
  }
  assert.deepEqual([await balance(), await other.balance(), await noncesOf(gateway)], [100_000n, 100_000n, []]);
  assert.equal(gateway.upstream.requests.length, 0);
  assert.equal((await gateway.call(TTS, signed)).status, 200, 'the original is still good');
});

test('the account may be written in any letter case', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { wallet, sign } = await depositor(gateway, 100_000n);
  for (const account of [wallet.address.toLowerCase(), `0x${wallet.address.slice(2).toUpperCase()}`]) {
    const call = withHeaders(await sign(TTS, HELLO), { 'x-x402-account': account });
    assert.equal((await gateway.call(TTS, call)).status, 200, account);
  }
});

test("R30, R34: the expiry is judged by the database's clock: 1 to 125 seconds ahead, whoever signs", async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  const gateway = await startPrepaidGateway(t, {}, { databaseUrl });
  const rich = await depositor(gateway, 100_000n);
  const poor = await depositor(gateway, 0n);
  const now = BigInt(Date.parse('2030-01-01T00:00:00Z') / 1000);
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
    assert.equal(await status(rich, now + ahead), expected, `${ahead} s ahead`);
    assert.equal(await status(poor, now + ahead), expected === 200 ? 402 : 400, `${ahead} s ahead, no account`);
  }
  const late = await rich.sign(TTS, HELLO, { expiry: now + 100n });
  await clock.advance('99.999 seconds');
  assert.equal((await gateway.call(TTS, late)).status, 200);
  const later = await rich.sign(TTS, HELLO, { expiry: now + 100n });
  await clock.advance('0.001 seconds');
  const refused = await gateway.call(TTS, later);
  assert.deepEqual([refused.status, refused.json.error.details.field], [400, 'x-x402-expiry']);
  assert.deepEqual(moneyOf(refused), [null, null]);
  const junk = withHeaders(later, { 'x-x402-nonce': 'another' });
  assert.equal((await gateway.call(TTS, junk)).status, 400, 'the expiry is told before the signature');
  const path = `/x402/accounts/${rich.wallet.address}`;
  assert.equal((await gateway.call(path, await rich.sign(path, {}, { expiry: now }))).status, 400);
});

test('R30: an expiry that was too far ahead is told so, though it has come near while the refusal was counted', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  const gateway = await startPrepaidGateway(t, {}, { databaseUrl });
  const { wallet, sign } = await depositor(gateway, 100_000n);
  const now = BigInt(Date.parse('2030-01-01T00:00:00Z') / 1000);
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO, { expiry: now }))).status, 400, 'the window is begun');
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
    assert.deepEqual([reply.status, reply.json.error.details.field], [400, 'x-x402-expiry'], path);
  }
});

test('R30: signatures may name the current payee or one that retires, and no other', async (t) => {
  const address = (digit: string): Hex => `0x${digit.repeat(40)}`;
  const payees = [
    `${address('1')}:current`,
    `${address('2')}:retiring`,
    `${address('3')}:next`,
    `${address('4')}:retiring:2020-01-01:2020-02-01`,
  ];
  const gateway = await startPrepaidGateway(t, { X402_PAY_TO: payees.join() });
  const { wallet } = await depositor(gateway, 100_000n);
  for (const [payee, expected] of [
    ['1', 200],
    ['2', 200],
    ['3', 401],
    ['4', 401],
    ['5', 401],
  ] as const) {
    const domain = { ...gateway.domain, verifyingContract: address(payee) };
    assert.equal((await gateway.call(TTS, await withCredential(wallet, domain, TTS, HELLO))).status, expected, payee);
  }
});

test('R36: prepaid headers beside those of another flow are refused before anything is verified', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { wallet, sign, balance } = await depositor(gateway, 1000n);
  const account = await gateway.fund(500);
  const own = `/x402/accounts/${wallet.address}`;
  for (const [path, call] of [
    [TTS, withHeaders(await sign(TTS, HELLO), { 'payment-signature': 'e30=' })],
    [TTS, withHeaders(await sign(TTS, HELLO), { 'x-credit-account': account })],
    [own, withHeaders(await sign(own), { 'x-credit-account': account })],
    [own, withHeaders(await sign(own), { 'payment-signature': 'e30=' })],
    ['/tts', withHeaders(await sign('/tts', HELLO), { 'x-credit-account': account })],
    ['/tts', await sign('/tts', HELLO)],
    ['/x402/tts/quote', { method: 'POST', json: QUOTED, headers: { 'x-credit-account': account } }],
  ] as const) {
    const reply = await gateway.call(path, call);
    assert.deepEqual([reply.status, reply.json.error.details.rule], [400, 'one flow'], path);
  }
  assert.equal(await balance(), 1000n);
});

test('R7: what is wrong with the order is told before the credential is looked at', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await depositor(gateway, 1000n);
  for (const [json, code] of [
    [{ text: ' ' }, 'INVALID_REQUEST'],
    [{ text: 'a', model: 'x' }, 'UNKNOWN_TTS_MODEL'],
    [{ text: 'a', voice: 'nova' }, 'INVALID_VOICE'],
    [{ text: 'a'.repeat(4097) }, 'TEXT_TOO_LONG'],
  ] as const) {
    const call = withHeaders(await sign(TTS, { method: 'POST', json }), { 'x-x402-nonce': 'another' });
    assert.equal((await gateway.call(TTS, call)).json.error.code, code);
  }
  const head = await gateway.call(`${TTS}?text=a`, { ...(await sign(`${TTS}?text=a`)), method: 'HEAD' });
  assert.deepEqual([head.status, head.headers.get('allow')], [405, 'GET, POST, OPTIONS']);
});

test('R47: without X402_PAY_TO prepaid requests answer 503 CONFIG_ERROR', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { wallet, sign } = await depositor(gateway, 0n);
  const off = await startGateway(t, { X402_PAY_TO: '', X402_FACILITATOR_URL: '' });
  const own = `/x402/accounts/${wallet.address}`;
  for (const [path, call] of [
    [TTS, await sign(TTS, HELLO)],
    [own, await sign(own)],
  ] as const) {
    const reply = await off.call(path, call);
    assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  }
});
