import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import { type Reply, startGateway } from '../support/gateway.ts';
import { later } from '../support/jobs.ts';
import { PRICE as PAYER_PRICE, PAYERS } from '../support/payers.ts';
import { depositor, HELLO, startPrepaidGateway, TTS, withHeaders } from '../support/prepaid.ts';
import { recordStatements } from '../support/recorded-statements.ts';
import { openAiError } from '../support/stub-upstream.ts';
import { challengeOf, PRICE, payFor, sign, startX402Gateway, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();
const NOTHING = { state: 'not_charged', amountMicroUsd: 0 };

const paymentOf = ({ status, json, text }: Reply) => {
  assert.ok(status >= 400, text);
  return json.error.details?.payment;
};

for (const [name, { start, skip }] of Object.entries(PAYERS)) {
  if (name === 'job') continue;

  test(`R64: ${name}: a failed synthesis says that nothing was charged`, { skip }, async (t) => {
    const { gateway, upstream, path, pay, paid } = await start(t);
    upstream.mode = openAiError(500);
    assert.deepEqual(paymentOf(await gateway.call(path, await pay())), NOTHING);
    assert.equal(await paid(), 0n);
  });

  test(`R64: ${name}: a refusal for want of money says that nothing was charged`, { skip }, async (t) => {
    const { gateway, path, pay, ask } = await start(t, {}, undefined, 10_000n);
    for (let left = 10_000n; left >= PAYER_PRICE; left -= PAYER_PRICE)
      assert.equal((await ask(await pay())).status, 200);
    const refused = await gateway.call(path, await pay());
    assert.deepEqual([refused.status, paymentOf(refused)], [402, NOTHING]);
  });

  test(`R64: ${name}: an answer from before the look-up says nothing of money`, { skip }, async (t) => {
    const { gateway, path, pay } = await start(t);
    const { json: _, ...call } = await pay();
    const headers = { ...call.headers, 'content-type': 'application/json' };
    const broken = await gateway.call(path, { ...call, headers, body: '{' });
    assert.deepEqual([broken.status, broken.json.error.code, paymentOf(broken)], [400, 'INVALID_JSON', undefined]);
  });
}

test('R64: a job whose COMMIT got no answer may be charged, and its repetition is the job', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const key = randomUUID();
  recordStatements(t).loseAnswer(/^commit$/i);
  const lost = await later(gateway, account, { key });
  assert.equal(lost.status, 503, lost.text);
  assert.equal(lost.json.error.details.reason, 'database_unavailable');
  assert.deepEqual(paymentOf(lost), { state: 'unknown', amountMicroUsd: 198 });
  const again = await later(gateway, account, { key });
  assert.deepEqual([again.status, again.headers.get('x-credit-charged')], [202, '198']);
  assert.equal(await gateway.balance(account), 5_000_000n - 198n);
});

test('R64: a reused idempotency key and an empty account have charged nothing', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  await later(gateway, account, { key: 'k' });
  assert.deepEqual(paymentOf(await later(gateway, account, { key: 'k', text: 'Other words' })), NOTHING);
  const poor = await gateway.fund(1);
  assert.deepEqual(paymentOf(await later(gateway, poor, { key: 'k', text: 'x'.repeat(4000) })), NOTHING);
});

test('R64: a prepaid request whose debit got no answer may be charged', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await depositor(gateway, 10_000n);
  recordStatements(t).loseAnswer(/insert into prepaid_nonce/);
  const lost = await gateway.call(TTS, await sign(TTS, HELLO));
  assert.deepEqual([lost.status, paymentOf(lost)], [503, { state: 'unknown', amountMicroUsd: 198 }]);
});

test('R64: prepaid refusals after the look-up have charged nothing', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await depositor(gateway, 10_000n);
  const nonce = randomUUID();
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO, { nonce }))).status, 200);
  const now = BigInt(Math.floor(Date.now() / 1000));
  const refused = {
    'another request with the nonce': await sign(TTS, { method: 'POST', json: { text: 'Other words' } }, { nonce }),
    'above the maximum': await sign(TTS, HELLO, { max: 1n }),
    'a wrong signature': withHeaders(await sign(TTS, HELLO), { 'x-x402-nonce': randomUUID() }),
    'an expiry of an hour ago': await sign(TTS, HELLO, { expiry: now - 3600n }),
  };
  for (const [name, call] of Object.entries(refused)) {
    assert.deepEqual(paymentOf(await gateway.call(TTS, call)), NOTHING, name);
  }
  const forgotten = await gateway.call(TTS, await sign(TTS, HELLO, { expiry: now - 100_000n }));
  assert.deepEqual([forgotten.status, paymentOf(forgotten)], [400, { state: 'unknown' }], 'its nonce may be pruned');
});

test('R64: a malformed credential is refused before the look-up', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await depositor(gateway, 10_000n);
  const missing = await gateway.call(TTS, withHeaders(await sign(TTS, HELLO), { 'x-x402-nonce': undefined }));
  const junk = await gateway.call(TTS, withPayment(HELLO, 'junk'));
  for (const reply of [missing, junk]) assert.deepEqual([reply.status, paymentOf(reply)], [400, undefined]);
});

test('R64: a direct payment says whether it was settled', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.verify({ isValid: false, invalidReason: 'insufficient_funds' });
  const invalid = (await payFor(gateway, payer)).reply;
  assert.deepEqual([invalid.status, paymentOf(invalid)], [402, NOTHING]);
  gateway.facilitator.faults.verify('error');
  const unverified = (await payFor(gateway, payer)).reply;
  assert.deepEqual([unverified.status, paymentOf(unverified)], [502, NOTHING]);
  gateway.facilitator.faults.settle({
    broadcast: false,
    answer: () => ({ success: false, errorReason: 'insufficient_funds', transaction: '', network: 'eip155:8453' }),
  });
  const { reply: refused, paid } = await payFor(gateway, payer);
  const unknown = { state: 'unknown', amountMicroUsd: Number(PRICE) };
  assert.deepEqual([refused.status, paymentOf(refused)], [402, unknown], 'R62: it may still land');
  assert.deepEqual(paymentOf(await gateway.call(TTS, paid)), unknown);
  const offer = await challengeOf(gateway, TTS, HELLO);
  const foreign = await sign(payer, {
    ...offer,
    accepts: [{ ...offer.accepts[0], payTo: payer.address }],
  } as typeof offer);
  assert.deepEqual(paymentOf(await gateway.call(TTS, withPayment(HELLO, foreign))), NOTHING);
});

test('R65: a card price above x-credit-max-amount is refused and nothing is held', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account, 'x-credit-max-amount': '197' };
  for (const path of ['/tts', '/tts?async=true']) {
    const refused = await gateway.call(path, { ...HELLO, headers });
    const { reason, payment, priceMicroUsd } = refused.json.error.details;
    assert.deepEqual([refused.status, reason, payment, priceMicroUsd], [402, 'over_max_amount', NOTHING, 198], path);
    const unknown = await gateway.call(path, { ...HELLO, headers: { ...headers, 'x-credit-account': randomUUID() } });
    assert.deepEqual([unknown.status, unknown.json.error.details.reason], [402, 'unknown_account']);
  }
  const get = await gateway.call('/tts?text=Hello%20world', { headers });
  assert.deepEqual([get.status, get.json.error.details.reason], [402, 'over_max_amount']);
  assert.equal((await gateway.db.selectFrom('transfer').select('id').where('kind', '=', 'charge').execute()).length, 0);
  const allowed = await gateway.call('/tts?async=true', {
    ...HELLO,
    headers: { ...headers, 'x-credit-max-amount': '198' },
  });
  assert.deepEqual([allowed.status, allowed.headers.get('x-credit-charged')], [202, '198']);
});

test('R65: x-credit-max-amount is a whole number up to 2^63 - 1, at /tts only', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const ask = (path: string, maximum: string) =>
    gateway.call(path, { ...HELLO, headers: { 'x-credit-account': account, 'x-credit-max-amount': maximum } });
  for (const maximum of ['', '-1', '1.5', '1e3', 'x', '9223372036854775808', '10000000000000000000']) {
    const { status, json } = await ask('/tts?async=true', maximum);
    assert.deepEqual(
      [status, json.error.code, json.error.details.field],
      [400, 'INVALID_REQUEST', 'x-credit-max-amount'],
    );
  }
  assert.equal((await ask('/tts?async=true', '9223372036854775807')).status, 202);
  const foreign = await gateway.call(TTS, { ...HELLO, headers: { 'x-credit-max-amount': '1' } });
  assert.deepEqual([foreign.status, foreign.json.error.details.rule], [400, 'one flow']);
});
