import assert from 'node:assert/strict';
import { wrapFetchWithPayment } from '@x402/fetch';
import { sql } from 'kysely';
import { test } from 'tap';
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
  signDeposit,
  told,
  withTerms,
} from '../support/deposit.ts';
import { BASE_URL } from '../support/gateway.ts';
import { unguarded } from '../support/unguarded.ts';
import {
  challengeOf,
  decodeHeader,
  officialClient,
  startX402Gateway,
  timesPaid,
  withPayment,
} from '../support/x402.ts';

const { chain, skip } = await testChain();

test('the unpaid deposit is a 402 with the challenge for its amount, which may not be stored', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const reply = await gateway.call(DEPOSIT_PATH, depositOf(2_500_000));
  assert.deepEqual([reply.status, reply.json.error.code], [402, 'PAYMENT_REQUIRED']);
  assert.equal(reply.headers.get('cache-control'), 'no-store');
  const challenge = decodeHeader(reply.headers.get('payment-required'));
  assert.deepEqual(reply.json.error.details, challenge);
  assert.equal(challenge.x402Version, 2);
  assert.equal(challenge.error, 'payment_required');
  assert.equal(challenge.resource.url, `${BASE_URL}/x402/deposit`);
  assert.equal(challenge.resource.mimeType, 'application/json');
  assert.deepEqual(challenge.accepts, [
    {
      scheme: 'exact',
      network: 'eip155:8453',
      amount: '2500000',
      asset: chain.asset,
      payTo: gateway.payTo,
      maxTimeoutSeconds: 120,
      extra: { name: 'USD Coin', version: '2' },
    },
  ]);
  assert.deepEqual(challenge.extensions['payment-identifier'].info, { required: true });
  await assertUntouched(gateway);
});

test('the official client deposits; answer, receipt, balance and chain agree', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const pay = wrapFetchWithPayment(fetch, officialClient(payer));
  const response = await pay(`${gateway.url}${DEPOSIT_PATH}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ amountMicroUsd: 250_000 }),
  });
  assert.equal(response.status, 200, await response.clone().text());
  assert.deepEqual(await response.json(), {
    address: payer.address.toLowerCase(),
    balanceMicroUsd: 250_000,
    balanceUsd: '0.250000',
    currency: 'USD',
    refundable: false,
    creditedMicroUsd: 250_000,
    alreadyCredited: false,
  });
  assert.equal(response.headers.get('cache-control'), 'private, no-store');
  const receipt = decodeHeader(response.headers.get('payment-response'));
  const [transaction] = gateway.facilitator.broadcasts;
  assert.deepEqual(receipt, { success: true, transaction, network: 'eip155:8453', payer: payer.address });
  assert.equal(await gateway.revenue(), 250_000n);
  assert.equal(await usdcBalance(chain.client, payer.address), 750_000n);
  await assertCredited(gateway, payer, [250_000]);
});

test('deposits add up; the repeat of one is its receipt, the balance of now and nothing credited', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const first = await payDeposit(gateway, payer);
  assert.deepEqual(told(first.reply), [200, DEPOSIT, false]);
  const second = await payDeposit(gateway, payer, 150_000);
  assert.deepEqual([second.reply.json.creditedMicroUsd, second.reply.json.balanceMicroUsd], [150_000, 250_000]);
  const calls = gateway.facilitator.calls.length;
  // Long after the replay window of speech: a deposit's repeat stays the repeat of a credited deposit.
  await unguarded(gateway.db, (db) => sql`update x402_payment set settled_at = now() - interval '10 days'`.execute(db));
  const repeat = await gateway.call(DEPOSIT_PATH, first.paid);
  assert.deepEqual(told(repeat), [200, 0, true]);
  assert.equal(repeat.json.balanceMicroUsd, 250_000);
  assert.equal(repeat.headers.get('payment-response'), first.reply.headers.get('payment-response'));
  assert.equal(gateway.facilitator.calls.length, calls);
  assert.equal(await timesPaid(chain, payer), 2);
  await assertCredited(gateway, payer, [DEPOSIT, 150_000]);
});

test('the payer in any letter case is one account', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const balances: number[] = [];
  for (const from of [getAddress(payer.address), payer.address.toLowerCase() as typeof payer.address]) {
    const payload = await withTerms(payer, await signDeposit(gateway, payer), { from });
    const reply = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), payload));
    assert.deepEqual(told(reply), [200, DEPOSIT, false]);
    balances.push(reply.json.balanceMicroUsd);
  }
  assert.deepEqual(balances, [DEPOSIT, 2 * DEPOSIT]);
  await assertCredited(gateway, payer, [DEPOSIT, DEPOSIT]);
});

test('R45: an offer of a payee that retires is honoured; challenges name the current one', { skip }, async (t) => {
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
    assert.deepEqual([refused.status, refused.json.error.details.error], [402, 'accepted_is_no_offer'], setting);
    assert.equal(refused.json.error.details.accepts[0].payTo, current);
    await assertUntouched(gateway);
  }
  const retiring = await after('retiring');
  const challenge = await challengeOf(retiring, DEPOSIT_PATH, depositOf(DEPOSIT));
  assert.deepEqual(
    challenge.accepts.map(({ payTo }) => payTo),
    [current],
  );
  mineSteadily(t, chain);
  assert.deepEqual(told(await retiring.call(DEPOSIT_PATH, paid)), [200, DEPOSIT, false]);
  assert.equal(await before.revenue(), BigInt(DEPOSIT));
  await assertCredited(retiring, payer, [DEPOSIT]);
});
