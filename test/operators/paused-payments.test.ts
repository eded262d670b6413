import assert from 'node:assert/strict';
import { test } from 'tap';
import { pauseFlows } from '../../src/operators/pauses.ts';
import { testChain, wallet } from '../support/chain.ts';
import { DEPOSIT, mineSteadily, payDeposit, prepaidBalance, signDeposit } from '../support/deposit.ts';
import { until } from '../support/until.ts';
import { challengeOf, HELLO, PRICE, payFor, sign, startX402Gateway, timesPaid, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();
const DEED = { operator: 'alice', reason: 'the chain is being moved' };

test('a paid answer is given again while its flow is paused, and a new payment is neither checked nor reserved', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const { reply, paid } = await payFor(gateway, payer);
  assert.equal(reply.status, 200);
  const next = withPayment(HELLO, await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO)));
  await pauseFlows(gateway.db, ['direct'], DEED);
  await until(() => gateway.app.pauses.has('direct'));
  const calls = gateway.facilitator.calls.length;

  const replayed = await gateway.call('/x402/tts', paid);
  assert.deepEqual([replayed.status, replayed.headers.get('x-idempotent-replay')], [200, 'true']);
  assert.ok(replayed.bytes.equals(reply.bytes));
  const refused = await gateway.call('/x402/tts', next);
  assert.deepEqual([refused.status, refused.json.error.details.reason], [503, 'paused']);
  const reused = await gateway.call('/x402/tts', { ...paid, json: { text: 'Another text' } });
  assert.equal(reused.status, 409, 'an identifier that belongs to another request is told as ever');
  assert.equal(gateway.facilitator.calls.length, calls);
  assert.equal((await gateway.db.selectFrom('x402_payment').select('id').execute()).length, 1);
  assert.equal(await timesPaid(chain, payer), 1);
});

test('a deposit that was made is told again while deposits are paused, and no new one is taken', {
  skip,
}, async (t) => {
  mineSteadily(t, chain);
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, BigInt(3 * DEPOSIT));
  const { reply, paid } = await payDeposit(gateway, payer);
  assert.equal(reply.status, 200, reply.text);
  const next = withPayment({ method: 'POST', json: { amountMicroUsd: DEPOSIT } }, await signDeposit(gateway, payer));
  await pauseFlows(gateway.db, ['deposit'], DEED);
  await until(() => gateway.app.pauses.has('deposit'));

  const replayed = await gateway.call('/x402/deposit', paid);
  assert.deepEqual([replayed.status, replayed.json.alreadyCredited], [200, true]);
  const refused = await gateway.call('/x402/deposit', next);
  assert.deepEqual([refused.status, refused.json.error.details.reason], [503, 'paused']);
  assert.ok(Number(refused.headers.get('retry-after')) > 0);
  assert.equal(await timesPaid(chain, payer), 1);
  assert.equal(await prepaidBalance(gateway, payer), DEPOSIT, 'the balance can be read');
});
