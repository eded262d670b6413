import { wrapFetchWithPayment } from '@x402/fetch';
import { sql } from 'kysely';
import { t, test } from 'tap';
import { getAddress } from 'viem';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  assertUntouched,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  mineSteadily,
  payDeposit,
  prepaidBalance,
  signDeposit,
  told,
  withTerms,
} from '../support/deposit.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import { domainOf, withCredential } from '../support/prepaid.ts';
import { unguarded } from '../support/unguarded.ts';
import {
  challengeOf,
  decodeHeader,
  HELLO,
  officialClient,
  startX402Gateway,
  timesPaid,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();
/** Of the deposits that are credited, and of those that are refused before anything is reserved. */
const [gateway, untouched] = skip
  ? ([] as never)
  : [await startX402Gateway(t, chain), await startX402Gateway(t, chain)];

test('the official client deposits, and response, balance and chain agree', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);

  const before = await gateway.revenue();
  const pay = wrapFetchWithPayment(fetch, officialClient(payer));
  const response = await pay(`${gateway.url}${DEPOSIT_PATH}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ amountMicroUsd: 250_000 }),
  });
  t.equal(response.status, 200, await response.clone().text());
  t.strictSame(await response.json(), {
    address: payer.address.toLowerCase(),
    balanceMicroUsd: 250_000,
    balanceUsd: '0.250000',
    currency: 'USD',
    refundable: false,
    creditedMicroUsd: 250_000,
    alreadyCredited: false,
  });
  t.equal(response.headers.get('cache-control'), 'private, no-store');
  const receipt = decodeHeader(response.headers.get('payment-response'));
  const transaction = gateway.facilitator.broadcasts.at(-1);
  t.strictSame(receipt, { success: true, transaction, network: 'eip155:8453', payer: payer.address });
  t.equal((await gateway.revenue()) - before, 250_000n);
  t.equal(await usdcBalance(chain.client, payer.address), 750_000n);
  await assertCredited(gateway, payer, [250_000]);
});

test('deposits add up, and a repeat returns the receipt and credits nothing', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const first = await payDeposit(gateway, payer);
  t.strictSame(told(first.reply), [200, DEPOSIT, false]);
  const second = await payDeposit(gateway, payer, 150_000);
  t.strictSame([second.reply.json.creditedMicroUsd, second.reply.json.balanceMicroUsd], [150_000, 250_000]);
  const calls = gateway.facilitator.calls.length;
  // Long after the replay window of speech: a deposit's repeat stays the repeat of a credited deposit.
  await unguarded(gateway.db, (db) => sql`update x402_payment set settled_at = now() - interval '10 days'`.execute(db));
  const repeat = await gateway.call(DEPOSIT_PATH, first.paid);
  t.strictSame(told(repeat), [200, 0, true]);
  t.equal(repeat.json.balanceMicroUsd, 250_000);
  t.equal(repeat.headers.get('payment-response'), first.reply.headers.get('payment-response'));
  t.equal(gateway.facilitator.calls.length, calls);
  t.equal(await timesPaid(chain, payer), 2);
  await assertCredited(gateway, payer, [DEPOSIT, 150_000]);
});

test('a payer in any letter case is one account', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const balances: number[] = [];
  for (const from of [getAddress(payer.address), payer.address.toLowerCase() as typeof payer.address]) {
    const payload = await withTerms(payer, await signDeposit(gateway, payer), { from });
    const reply = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), payload));
    t.strictSame(told(reply), [200, DEPOSIT, false]);
    balances.push(reply.json.balanceMicroUsd);
  }
  t.strictSame(balances, [DEPOSIT, 2 * DEPOSIT]);
  await assertCredited(gateway, payer, [DEPOSIT, DEPOSIT]);
});

test('R45: an offer of a retiring payee is honored, challenges name the current one', { skip }, async (t) => {
  const before = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const payload = await signDeposit(before, payer);
  const paid = withPayment(depositOf(DEPOSIT), payload);
  const current = getAddress('0xcA11bde05977b3631167028862bE2a173976CA11');
  const after = (setting: string) =>
    startX402Gateway(t, chain, { X402_PAY_TO: `${current},${before.payTo}:${setting}` });
  for (const setting of ['retiring::2020-01-01', 'next']) {
    const gateway = await after(setting);
    const refused = await gateway.call(DEPOSIT_PATH, paid);
    t.strictSame([refused.status, refused.json.error.details.error], [402, 'accepted_is_no_offer'], setting);
    t.equal(refused.json.error.details.accepts[0].payTo, current);
    await assertUntouched(gateway);
  }
  const retiring = await after('retiring');
  const payTos = (await challengeOf(retiring, DEPOSIT_PATH, depositOf(DEPOSIT))).accepts.map(({ payTo }) => payTo);
  t.strictSame(payTos, [current]);
  mineSteadily(t, chain);
  t.strictSame(told(await retiring.call(DEPOSIT_PATH, paid)), [200, DEPOSIT, false]);
  t.equal(await before.revenue(), BigInt(DEPOSIT));
  await assertCredited(retiring, payer, [DEPOSIT]);
});

const AMOUNTS: [unknown, string | undefined][] = [
  [100_000, undefined],
  [100_000_000, undefined],
  [99_999, 'minimum'],
  [100_000_001, 'maximum'],
  [-100_000, 'minimum'],
  [1e300, 'maximum'],
  [100_000.5, 'type'],
  ['100000', 'type'],
  [null, 'type'],
  [undefined, 'required'],
];

test('a deposit is a whole number of 100,000 to 100,000,000 micro-USD', { skip }, async (t) => {
  for (const [amount, rule] of AMOUNTS) {
    for (const call of [depositOf(amount), withPayment(depositOf(amount), 'junk')]) {
      const { status, json } = await untouched.call(DEPOSIT_PATH, call);
      const what = `${JSON.stringify(amount)}: ${JSON.stringify(json)}`;
      if (rule === undefined) {
        const isPaid = call.headers !== undefined;
        const expected = isPaid ? [400, 'INVALID_PAYMENT_PAYLOAD'] : [402, 'PAYMENT_REQUIRED'];
        t.strictSame([status, json.error.code], expected, what);
        if (!isPaid) t.equal(json.error.details.accepts[0].amount, String(amount));
      } else {
        const { code, details } = json.error;
        t.strictSame(
          [status, code, details.field, details.rule],
          [400, 'INVALID_REQUEST', 'amountMicroUsd', rule],
          what,
        );
      }
    }
  }
  await assertUntouched(untouched);
});

test('R7: a malformed deposit is 400, 413 or 415 before its payment is checked', { skip }, async (t) => {
  const json = 'application/json';
  const bodies: [Call, number, string][] = [
    [{ headers: { 'content-type': 'text/plain' }, body: '{"amountMicroUsd":100000}' }, 415, 'UNSUPPORTED_CONTENT_TYPE'],
    [{ headers: { 'content-type': json }, body: ' '.repeat(65_537) }, 413, 'REQUEST_TOO_LARGE'],
    [{ headers: { 'content-type': json }, body: '{"amountMicroUsd":' }, 400, 'INVALID_JSON'],
    [{ headers: { 'content-type': json }, body: '[100000]' }, 400, 'INVALID_REQUEST'],
  ];
  const payload = await signDeposit(untouched, await wallet(chain.client));
  for (const [call, status, code] of bodies) {
    for (const sent of [call, withPayment(call, payload)]) {
      const reply = await untouched.call(DEPOSIT_PATH, { method: 'POST', ...sent });
      t.strictSame([reply.status, reply.json.error.code], [status, code], String(call.body).slice(0, 50));
    }
  }
  const get = await untouched.call(DEPOSIT_PATH);
  t.strictSame([get.status, get.headers.get('allow')], [405, 'POST, OPTIONS']);
  await assertUntouched(untouched);
});

test('R36: a deposit ignores prepaid headers and refuses mixed flows with 400', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1_000_000n);
  const call = depositOf(DEPOSIT);
  const signed = await withCredential(payer, domainOf(untouched.payTo), DEPOSIT_PATH, call);
  const malformed = { 'x-x402-account': 'nobody', 'x-x402-expiry': 'never', 'x-x402-max-amount': '-1' };
  const prepaid = [signed.headers ?? {}, malformed, { 'x-x402-nonce': '' }, { 'x-x402-signature': '0x' }];
  for (const headers of prepaid) {
    const alone = await untouched.call(DEPOSIT_PATH, { ...call, headers });
    t.equal(alone.status, 402, alone.text);
    t.equal(decodeHeader(alone.headers.get('payment-required')).accepts[0].amount, String(DEPOSIT));
  }
  const payload = await signDeposit(untouched, payer);
  const mixtures = [...prepaid.map((headers) => withPayment({ ...call, headers }, payload))];
  for (const headers of [{ 'x-credit-account': 'x' }, { ...signed.headers, 'x-credit-account': 'x' }])
    mixtures.push({ ...call, headers }, withPayment({ ...call, headers }, payload));
  for (const mixture of mixtures) {
    const reply = await untouched.call(DEPOSIT_PATH, mixture);
    t.strictSame(
      [reply.status, reply.json.error.code, reply.json.error.details.rule],
      [400, 'INVALID_REQUEST', 'one flow'],
    );
  }
  await assertUntouched(untouched);
  t.equal(await prepaidBalance(untouched, payer), undefined);
});

test('R48: an unpaid deposit takes no slot, a failed paid one does', { skip }, async (t) => {
  const unfunded = await wallet(chain.client);
  for (const fail of [
    async () => withPayment(depositOf(DEPOSIT), 'junk'),
    async (gateway: X402Gateway) => withPayment(depositOf(DEPOSIT), await signDeposit(gateway, unfunded)),
  ]) {
    const gateway = await startX402Gateway(t, chain, { RATE_LIMIT_MAX: '1' });
    for (let count = 0; count < 3; count++) {
      const reply = await gateway.call(DEPOSIT_PATH, depositOf(DEPOSIT));
      t.strictSame([reply.status, reply.headers.get('x-ratelimit-limit')], [402, null]);
    }
    const failed = await gateway.call(DEPOSIT_PATH, await fail(gateway));
    t.ok([400, 402].includes(failed.status), failed.text);
    t.equal(failed.headers.get('x-ratelimit-remaining'), '0');
    t.equal((await gateway.call(DEPOSIT_PATH, await fail(gateway))).status, 429);
  }
});

test('R47, R58: without payee or X402_RPC_URL a payment is 503 CONFIG_ERROR', async (t) => {
  for (const env of [{ X402_PAY_TO: '', X402_FACILITATOR_URL: '', X402_RPC_URL: '' }, { X402_RPC_URL: '' }]) {
    const gateway = await startGateway(t, env);
    for (const [path, call] of [[DEPOSIT_PATH, depositOf(DEPOSIT)] as const, ['/x402/tts', HELLO] as const]) {
      for (const sent of [call, withPayment(call, 'junk')]) {
        const reply = await gateway.call(path, sent);
        t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR'], path);
      }
    }
  }
});
