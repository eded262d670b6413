import assert from 'node:assert/strict';
import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import { assertCredited, DEPOSIT, DEPOSIT_PATH, doubtfulTurn, payDeposit, told } from '../support/deposit.ts';
import { startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

test('R25: a settle that hangs after its broadcast is given up after 30 s, and the deposit credited all the same', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, { confirmationTimeoutMs: 0 });
  const payer = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.settle({ broadcast: true, answer: 'hang' });
  const { reply, paid } = await payDeposit(gateway, payer);
  assert.deepEqual(told(reply), [409, 'PAYMENT_REPLAY_PENDING']);
  await chain.client.mine({ blocks: 1 });
  assert.deepEqual(await doubtfulTurn(gateway), ['done', 1]);
  assert.deepEqual(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R24: a verify that hangs is given up after 5 s, and the payment is good afterwards', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, { confirmationTimeoutMs: 0 });
  const payer = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.verify('hang');
  const { reply, paid } = await payDeposit(gateway, payer);
  assert.deepEqual(told(reply), [502, 'PAYMENT_ERROR']);
  assert.deepEqual(told(await gateway.call(DEPOSIT_PATH, paid)), [409, 'PAYMENT_REPLAY_PENDING']);
  await chain.client.mine({ blocks: 1 });
  assert.deepEqual(await doubtfulTurn(gateway), ['done', 1]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});
