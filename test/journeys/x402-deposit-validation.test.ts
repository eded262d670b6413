import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import { assertUntouched, DEPOSIT, DEPOSIT_PATH, depositOf, prepaidBalance, signDeposit } from '../support/deposit.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import { domainOf, withCredential } from '../support/prepaid.ts';
import { decodeHeader, startX402Gateway, withPayment, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

const AMOUNTS: [unknown, string | undefined][] = [
  [100_000, undefined],
  [100_000_000, undefined],
  [99_999, 'minimum'],
  [100_000_001, 'maximum'],
  [0, 'minimum'],
  [-100_000, 'minimum'],
  [1e300, 'maximum'],
  [100_000.5, 'type'],
  [1.5, 'type'],
  ['100000', 'type'],
  [null, 'type'],
  [true, 'type'],
  [[100_000], 'type'],
  [undefined, 'required'],
];

test('Limits: a deposit is a whole number of 100,000 to 100,000,000 micro-USD', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  for (const [amount, rule] of AMOUNTS) {
    for (const call of [depositOf(amount), withPayment(depositOf(amount), 'junk')]) {
      const { status, json } = await gateway.call(DEPOSIT_PATH, call);
      const what = `${JSON.stringify(amount)}: ${JSON.stringify(json)}`;
      if (rule === undefined) {
        const isPaid = call.headers !== undefined;
        const expected = isPaid ? [400, 'INVALID_PAYMENT_PAYLOAD'] : [402, 'PAYMENT_REQUIRED'];
        assert.deepEqual([status, json.error.code], expected, what);
        if (!isPaid) assert.equal(json.error.details.accepts[0].amount, String(amount));
      } else {
        const { code, details } = json.error;
        assert.deepEqual(
          [status, code, details.field, details.rule],
          [400, 'INVALID_REQUEST', 'amountMicroUsd', rule],
          what,
        );
      }
    }
  }
  await assertUntouched(gateway);
});

test('R7: other content type 415, too large 413, no JSON 400, whatever the payment', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const json = 'application/json';
  const bodies: [Call, number, string][] = [
    [{ headers: { 'content-type': 'text/plain' }, body: '{"amountMicroUsd":100000}' }, 415, 'UNSUPPORTED_CONTENT_TYPE'],
    [{ headers: { 'content-type': json }, body: ' '.repeat(65_537) }, 413, 'REQUEST_TOO_LARGE'],
    [{ headers: { 'content-type': json }, body: '{"amountMicroUsd":' }, 400, 'INVALID_JSON'],
    [{ headers: { 'content-type': json }, body: '[100000]' }, 400, 'INVALID_REQUEST'],
    [{ headers: { 'content-type': json }, body: 'null' }, 400, 'INVALID_REQUEST'],
  ];
  const payload = await signDeposit(gateway, await wallet(chain.client));
  for (const [call, status, code] of bodies) {
    for (const sent of [call, withPayment(call, payload)]) {
      const reply = await gateway.call(DEPOSIT_PATH, { method: 'POST', ...sent });
      assert.deepEqual([reply.status, reply.json.error.code], [status, code], String(call.body).slice(0, 50));
    }
  }
  const get = await gateway.call(DEPOSIT_PATH);
  assert.deepEqual([get.status, get.headers.get('allow')], [405, 'POST, OPTIONS']);
  await assertUntouched(gateway);
});

test('R36: prepaid headers alone are ignored, also malformed ones; headers of two flows are 400', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const call = depositOf(DEPOSIT);
  const domain = domainOf(gateway.payTo);
  const signed = await withCredential(payer, domain, DEPOSIT_PATH, call);
  const malformed = { 'x-x402-account': 'nobody', 'x-x402-expiry': 'never', 'x-x402-max-amount': '-1' };
  const prepaid = [signed.headers ?? {}, malformed, { 'x-x402-nonce': '' }, { 'x-x402-signature': '0x' }];
  for (const headers of prepaid) {
    const alone = await gateway.call(DEPOSIT_PATH, { ...call, headers });
    assert.equal(alone.status, 402, alone.text);
    assert.equal(decodeHeader(alone.headers.get('payment-required')).accepts[0].amount, String(DEPOSIT));
  }
  const payload = await signDeposit(gateway, payer);
  const mixtures = [...prepaid.map((headers) => withPayment({ ...call, headers }, payload))];
  for (const headers of [{ 'x-credit-account': 'x' }, { ...signed.headers, 'x-credit-account': 'x' }]) {
    mixtures.push({ ...call, headers }, withPayment({ ...call, headers }, payload));
  }
  for (const mixture of mixtures) {
    const reply = await gateway.call(DEPOSIT_PATH, mixture);
    assert.deepEqual(
      [reply.status, reply.json.error.code, reply.json.error.details.rule],
      [400, 'INVALID_REQUEST', 'one flow'],
    );
  }
  await assertUntouched(gateway);
  assert.equal(await prepaidBalance(gateway, payer), undefined);
});

test('R48: the challenge of a deposit takes no slot; a paid one that fails does, whatever it fails for', {
  skip,
}, async (t) => {
  const unfunded = await wallet(chain.client);
  for (const fail of [
    async () => withPayment(depositOf(DEPOSIT), 'junk'),
    async (gateway: X402Gateway) => withPayment(depositOf(DEPOSIT), await signDeposit(gateway, unfunded)),
  ]) {
    const gateway = await startX402Gateway(t, chain, { RATE_LIMIT_MAX: '1' });
    for (let count = 0; count < 3; count++) {
      const reply = await gateway.call(DEPOSIT_PATH, depositOf(DEPOSIT));
      assert.deepEqual([reply.status, reply.headers.get('x-ratelimit-limit')], [402, null]);
    }
    const failed = await gateway.call(DEPOSIT_PATH, await fail(gateway));
    assert.ok([400, 402].includes(failed.status), failed.text);
    assert.equal(failed.headers.get('x-ratelimit-remaining'), '0');
    assert.equal((await gateway.call(DEPOSIT_PATH, await fail(gateway))).status, 429);
  }
});

test('R47, R58: without payee, or without X402_RPC_URL, a deposit and its challenge are 503 CONFIG_ERROR', async (t) => {
  const settings = [{ X402_PAY_TO: '', X402_FACILITATOR_URL: '', X402_RPC_URL: '' }, { X402_RPC_URL: '' }];
  for (const env of settings) {
    const gateway = await startGateway(t, env);
    for (const call of [depositOf(DEPOSIT), withPayment(depositOf(DEPOSIT), 'junk')]) {
      const reply = await gateway.call(DEPOSIT_PATH, call);
      assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
    }
  }
});

test('R47: without tables a paid deposit is 503 CONFIG_ERROR with the command, before any call', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payload = await signDeposit(gateway, await wallet(chain.client, 1_000_000n));
  await sql`drop table x402_payment`.execute(gateway.db);
  const reply = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), payload));
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  assert.equal(reply.json.error.details.command, 'npm run migrate');
  assert.equal(gateway.facilitator.calls.length, 0);
});
