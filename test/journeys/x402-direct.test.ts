import assert from 'node:assert/strict';
import { wrapFetchWithPayment } from '@x402/fetch';
import { t, test } from 'tap';
import { type Hex, serializeErc6492Signature } from 'viem';
import { audit } from '../../src/ledger/audit.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { included, submitAuthorization, testChain, usesOfAuthorizations, wallet } from '../support/chain.ts';
import { APPROVED, deploy, payFromContract, undeployedWallet } from '../support/contract-wallet.ts';
import { DEPOSIT, DEPOSIT_PATH, depositOf, mineSteadily, paymentStates, signedOf, told } from '../support/deposit.ts';
import { fundedWallet, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
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
/** Of all tests that need no other settings. */
const gateway = skip ? (undefined as never) : await startX402Gateway(t, chain, { LOG_LEVEL: 'warn' });
const callsOf = async (run: () => Promise<unknown>) => {
  const before = gateway.facilitator.calls.length;
  await run();
  return gateway.facilitator.calls.slice(before);
};
const earned = async (run: () => Promise<unknown>) => {
  const before = await gateway.revenue();
  await run();
  return (await gateway.revenue()) - before;
};

test('the official client pays POST and GET, and chain and ledger agree', { skip }, async (t) => {
  const payer = await wallet(chain.client, 10_000n);
  const before = await gateway.revenue();
  const pay = wrapFetchWithPayment(fetch, officialClient(payer));
  const post = await pay(`${gateway.url}/x402/tts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: 'Hello world' }),
  });
  t.equal(post.status, 200, await post.clone().text());
  t.strictSame([post.headers.get('content-type'), post.headers.get('x-idempotent-replay')], ['audio/mpeg', 'false']);
  t.equal(post.headers.get('cache-control'), 'private, no-store');
  const get = await wrapFetchWithPayment(fetch, officialClient(payer))(`${gateway.url}/x402/tts?text=Hello%20world`);
  t.equal(get.status, 200, await get.clone().text());
  t.equal((await gateway.revenue()) - before, 2n * PRICE);
  t.equal(await usdcBalance(chain.client, payer.address), 10_000n - 2n * PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('R22: an exact replay gets the same bytes and receipt without a facilitator call', { skip }, async (t) => {
  const payer = await wallet(chain.client, 10_000n);
  const { reply, paid } = await payFor(gateway, payer);
  t.equal(reply.status, 200, reply.text.slice(0, 500));
  const calls = gateway.facilitator.calls.length;
  const spoken = gateway.upstream.requests.length;
  const replay = await gateway.call('/x402/tts', paid);
  t.equal(replay.status, 200);
  t.ok(replay.bytes.equals(reply.bytes));
  t.equal(replay.headers.get('payment-response'), reply.headers.get('payment-response'));
  t.equal(replay.headers.get('x-payment-identifier'), reply.headers.get('x-payment-identifier'));
  t.equal(replay.headers.get('x-idempotent-replay'), 'true');
  t.equal(Number(replay.headers.get('content-length')), replay.bytes.length);
  t.equal(gateway.facilitator.calls.length, calls);
  t.strictSame([await timesPaid(chain, payer), gateway.upstream.requests.length], [1, spoken]);
});

test('R27: the payment header may be standard, URL-safe or unpadded Base64', { skip }, async (t) => {
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(gateway, '/x402/tts', HELLO));
  const standard = encodePayment({ ...payload, note: '>>>???ÿÿÿ' });
  const urlSafe = standard.replaceAll('+', '-').replaceAll('/', '_');
  const forms = [standard, urlSafe, standard.replaceAll('=', ''), urlSafe.replaceAll('=', '')];
  t.equal(new Set(forms).size >= 2, true);
  const sum = await earned(async () => {
    for (const form of forms) t.equal((await gateway.call(TTS, withPayment(HELLO, form))).status, 200);
  });
  t.equal(sum, PRICE);
});

test('a malformed payment is INVALID_PAYMENT_PAYLOAD without a facilitator call', { skip }, async (t) => {
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(gateway, '/x402/tts', HELLO));
  const hostile = { pattern: '^(a+)+$', $ref: 'http://127.0.0.1:1/x' };
  const junk = { ...payload, extensions: { 'payment-identifier': { info: { required: true }, schema: hostile } } };
  const before = await paymentStates(gateway);
  const called = await callsOf(async () => {
    for (const value of ['junk', '', { ...payload, x402Version: 1 }, junk]) {
      const reply = await gateway.call(TTS, withPayment(HELLO, value));
      t.strictSame([reply.status, reply.json.error.code], [400, 'INVALID_PAYMENT_PAYLOAD'], JSON.stringify(value));
    }
  });
  t.strictSame([called, await paymentStates(gateway)], [[], before]);
  const identifier = { info: { id: 'pay_0123456789abcdef' }, schema: hostile };
  const extensions = { ...payload.extensions, 'payment-identifier': identifier };
  const [paid] = await callsOf(async () => {
    t.equal((await gateway.call(TTS, withPayment(HELLO, { ...payload, extensions }))).status, 200);
  });
  const forwarded = paid?.paymentPayload.extensions?.['payment-identifier'];
  t.ok(!JSON.stringify(forwarded).includes('127.0.0.1:1'), 'a client-sent schema is not passed on');
});

test('R5: a GET with 1500 CJK characters and a full PAYMENT-SIGNATURE is served', { skip }, async (t) => {
  const text = '語'.repeat(1500);
  const path = `/x402/tts?text=${encodeURIComponent(text)}`;
  const payer = await wallet(chain.client, 100_000n);
  const sum = await earned(async () => t.equal((await payFor(gateway, payer, {}, path)).reply.status, 200));
  t.strictSame([gateway.upstream.requests.at(-1)?.body?.input, sum], [text, 27_000n]);
});

test('R28, R45: a payment of a wrong time, payee or amount is refused before any call', { skip }, async (t) => {
  const payer = await wallet(chain.client, PRICE);
  const payload = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  const now = Math.floor(Date.now() / 1000);
  const cases: [object, string][] = [
    [{ validBefore: String(now + 10) }, 'authorization_expires_too_soon'],
    [{ validBefore: String(now + 300) }, 'authorization_valid_for_too_long'],
    [{ validBefore: String(2n ** 256n - 1n) }, 'authorization_valid_for_too_long'],
    [{ validAfter: String(now + 60) }, 'authorization_not_yet_valid'],
    [{ to: payer.address }, 'authorization_to_another_payee'],
    [{ value: String(PRICE - 1n) }, 'authorization_of_another_amount'],
    [{ value: String(PRICE + 1n) }, 'authorization_of_another_amount'],
  ];
  const called = await callsOf(async () => {
    for (const [change, reason] of cases) {
      const authorization = { ...(payload.payload.authorization as object), ...change };
      const call = withPayment(HELLO, { ...payload, payload: { ...payload.payload, authorization } });
      const reply = await gateway.call(TTS, call);
      t.strictSame([reply.status, reply.json.error.details.error], [402, reason]);
    }
  });
  t.strictSame(called, []);
});

test('R48: paid requests and junk payments take a slot, unpaid challenges take none', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { RATE_LIMIT_MAX: '3' });
  for (let count = 0; count < 5; count++) {
    const unpaid = await gateway.call('/x402/tts', HELLO);
    t.strictSame([unpaid.status, unpaid.headers.get('x-ratelimit-limit')], [402, null]);
  }
  const junk = await gateway.call('/x402/tts', withPayment(HELLO, 'junk'));
  t.strictSame([junk.status, junk.headers.get('x-ratelimit-remaining')], [400, '2']);
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
  t.strictSame([reply.status, reply.headers.get('x-ratelimit-remaining')], [200, '1']);
  t.strictSame([reply.headers.get('x-ratelimit-scope'), (await gateway.call('/x402/tts', paid)).status], ['ip', 200]);
  const refused = await gateway.call('/x402/tts', paid);
  t.strictSame([refused.status, refused.json.error.code], [429, 'RATE_LIMITED']);
  t.ok(Number(refused.headers.get('retry-after')) > 0);
});

/** The signature as Ledger wallets write it. */
const withShortV = (signature: Hex): Hex => `${signature.slice(0, -2)}${signature.endsWith('1b') ? '00' : '01'}` as Hex;
const FULL_V = ['1b', '1c'];

test('R67: v 0 and 1 pay like 27 and 28, directly and by deposit', { skip }, async (t) => {
  mineSteadily(t, chain);
  const payer = await wallet(chain.client, 10_000_000n);
  for (const v of FULL_V) {
    for (const [path, call] of [[TTS, HELLO] as const, [DEPOSIT_PATH, depositOf(DEPOSIT)] as const]) {
      const challenge = await challengeOf(gateway, path, call);
      let payload = await sign(payer, challenge);
      while (!signedOf(payload).signature.endsWith(v)) payload = await sign(payer, challenge);
      const short = { ...payload.payload, signature: withShortV(signedOf(payload).signature) };
      const called = await callsOf(async () => {
        const reply = await gateway.call(path, withPayment(call, { ...payload, payload: short }));
        t.equal(reply.status, 200, reply.text.slice(0, 300));
      });
      t.equal(
        (await gateway.call(path, withPayment(call, payload))).status,
        200,
        'the same payment, however v is written',
      );
      for (const { paymentPayload } of called) t.ok(String(paymentPayload.payload.signature).endsWith(v));
    }
  }
  t.strictSame(await audit(gateway.db), []);
});

test('R67: prepaid requests accept v 0 and 1 and treat them like 27 and 28', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign: signPrepaid } = await fundedWallet(gateway, 1_000_000n);
  for (const v of FULL_V) {
    let call = await signPrepaid(TTS, HELLO);
    while (!String(call.headers?.['x-x402-signature']).endsWith(v)) call = await signPrepaid(TTS, HELLO);
    const short = withShortV(call.headers?.['x-x402-signature'] as Hex);
    const reply = await gateway.call(TTS, { ...call, headers: { ...call.headers, 'x-x402-signature': short } });
    t.equal(reply.status, 200, reply.text.slice(0, 300));
    // Until the books have followed the answer, the state is pending.
    await until(async () => {
      const { status, json } = await gateway.call(TTS, call);
      assert.equal(status, 409);
      return json.error.details.state === 'charged';
    });
  }
});

test("the facilitator's reason is logged shortened and without control characters", { skip }, async (t) => {
  const payload = await sign(await wallet(chain.client, PRICE), await challengeOf(gateway, TTS, HELLO));
  const { signature } = signedOf(payload);
  const invalidReason = `bad\u001b[31m\n v in ${signature} \u202e${'x'.repeat(5_000)}`;
  gateway.facilitator.faults.verify({ isValid: false, invalidReason, invalidMessage: 'of the wallet' });
  const reply = await gateway.call(TTS, withPayment(HELLO, payload));
  t.strictSame([reply.status, reply.json.error.details.error], [402, 'invalid_payment']);
  const [line] = gateway.log.filter(({ detail }) => detail !== undefined);
  t.match(String(line?.detail), /^status 200 bad \[31m v in 0x… x{100}/);
  t.ok(String(line?.detail).length < 300);
  t.match(reply.json.error.message, /\(invalid_payment\), and signing again will hardly help/);
  gateway.facilitator.faults.verify({ isValid: false, invalidReason: 'invalid_payload' });
  const small = await gateway.call(TTS, withPayment(HELLO, payload));
  t.equal(small.status, 402);
  t.match(
    small.json.error.message,
    /\(invalid_payload\), and signing again will hardly help\. The facilitator's minimum/,
  );
  t.ok(!JSON.stringify(gateway.log).includes(signature.slice(10, 100)));
});

test('a payment of an undeployed wallet goes to the facilitator (ERC-6492)', { skip }, async (t) => {
  const payer = await undeployedWallet(chain, PRICE);
  const signature = serializeErc6492Signature({ address: payer, data: '0x1234', signature: APPROVED });
  const payload = await payFromContract(gateway, payer, HELLO, signature);
  gateway.facilitator.faults.verify({ isValid: true, payer });
  gateway.facilitator.faults.settle({
    broadcast: false,
    answer: async () => {
      await deploy(chain, payer);
      const inner = { ...signedOf(payload), signature: APPROVED };
      const sender = await wallet(chain.client);
      const transaction = await included(chain.client, submitAuthorization(chain.client, sender, inner));
      return { success: true, transaction };
    },
  });
  const called = await callsOf(async () => {
    const reply = await gateway.call(TTS, withPayment(HELLO, payload));
    t.equal(reply.status, 200, reply.text.slice(0, 300));
  });
  t.equal((await usesOfAuthorizations(chain.client, payer)).length, 1);
  const sent = called.map(({ paymentPayload }) => paymentPayload.payload.signature);
  t.strictSame(sent, [signature, signature]);
  t.strictSame(await audit(gateway.db), []);
});

test('an ERC-6492 payment that the facilitator finds invalid reserves nothing', { skip }, async (t) => {
  const before = await paymentStates(gateway);
  const payer = await undeployedWallet(chain, PRICE);
  const signature = serializeErc6492Signature({ address: payer, data: '0x1234', signature: APPROVED });
  gateway.facilitator.faults.verify({ isValid: false, invalidReason: 'invalid_exact_evm_signature' });
  const reply = await gateway.call(TTS, withPayment(HELLO, await payFromContract(gateway, payer, HELLO, signature)));
  t.strictSame([reply.status, reply.json.error.details.error], [402, 'invalid_exact_evm_signature']);
  // R23: the payer's balance covers the price, so it is the facilitator's that does not.
  gateway.facilitator.faults.verify({ isValid: false, invalidReason: 'invalid_exact_evm_insufficient_balance' });
  const covered = await gateway.call(TTS, withPayment(HELLO, await payFromContract(gateway, payer, HELLO, signature)));
  t.strictSame([covered.status, covered.json.error.details.reason], [502, 'facilitator_lacks_gas']);
  t.strictSame(await paymentStates(gateway), before);
});

test('a payment in X-PAYMENT is 400 and names the header of version 2', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1_000_000n);
  for (const [path, call] of [
    [TTS, HELLO],
    [`${TTS}?text=Hello`, {}],
    [DEPOSIT_PATH, depositOf(DEPOSIT)],
  ] as const) {
    const paid = withPayment(call, await sign(payer, await challengeOf(gateway, path, call)));
    const reply = await gateway.call(path, { ...call, headers: { 'x-payment': paid.headers?.['payment-signature'] } });
    t.strictSame(told(reply), [400, 'INVALID_PAYMENT_PAYLOAD'], path);
    t.equal(reply.json.error.details.field, 'x-payment');
    t.match(reply.json.error.message, /payment-signature/);
    const both = { ...paid, headers: { ...paid.headers, 'x-payment': 'of older servers' } };
    if (path !== DEPOSIT_PATH) t.equal((await gateway.call(path, both)).status, 200);
  }
});
