import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  doubtfulTurn,
  payDeposit,
  paymentStates,
  signDeposit,
  told,
} from '../support/deposit.ts';
import { refused } from '../support/facilitator-faults.ts';
import { reorganize } from '../support/reorganize.ts';
import { decodeHeader, startX402Gateway, timesPaid, withPayment } from '../support/x402.ts';

// In a file of its own, since its chain's clock runs ahead of the payers' in the end.
const { chain, skip } = await testChain();

test('R44: a deposit that never lands is 402 once validBefore is finalized', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, { confirmationTimeoutMs: 0 });
  const vanished = await wallet(chain.client, 1_000_000n);
  const neverSent = await wallet(chain.client, 1_000_000n);
  const rejected = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.settle(
    { broadcast: false, answer: 'error' },
    refused('insufficient_funds'),
    // The answer that gets lost hides a transfer, which a reorganisation then takes away.
    { broadcast: true, answer: 'error' },
  );
  const deposits = [];
  for (const payer of [neverSent, rejected, vanished]) deposits.push(await payDeposit(gateway, payer));
  t.strictSame(
    deposits.map(({ reply }) => reply.status),
    [409, 402, 409],
  );
  t.equal(await timesPaid(chain, vanished), 1);
  await reorganize(chain.client, 1);
  t.equal(await timesPaid(chain, vanished), 0);

  await chain.client.mine({ blocks: 5 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 0], 'they may still land');
  await chain.client.increaseTime({ seconds: 400 });
  await chain.client.mine({ blocks: 2 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 0], 'the block past validBefore is not finalized');
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 3]);
  t.strictSame(await paymentStates(gateway), ['failed', 'failed', 'failed']);

  for (const { paid, payload } of deposits) {
    const repeat = await gateway.call(DEPOSIT_PATH, paid);
    t.strictSame(told(repeat), [402, 'PAYMENT_REQUIRED']);
    t.equal(decodeHeader(repeat.headers.get('payment-required')).accepts[0].amount, String(DEPOSIT));
    const fresh = await signDeposit(gateway, vanished);
    const misuse = withPayment(depositOf(DEPOSIT), { ...fresh, payload: payload.payload });
    t.strictSame(told(await gateway.call(DEPOSIT_PATH, misuse)), [409, 'PAYMENT_IDENTIFIER_CONFLICT']);
  }
  for (const payer of [vanished, neverSent, rejected]) await assertCredited(gateway, payer, []);
  t.equal(await gateway.revenue(), 0n);
});
