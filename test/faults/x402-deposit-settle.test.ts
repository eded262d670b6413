import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  doubtfulTurn,
  land,
  mineSteadily,
  payDeposit,
  paymentStates,
  signDeposit,
  told,
} from '../support/deposit.ts';
import { anotherTransaction, invalid, LOST_SETTLES, onlyClaimed, refused } from '../support/facilitator-faults.ts';
import type { Reply } from '../support/gateway.ts';
import { reorganize } from '../support/reorganize.ts';
import { until } from '../support/until.ts';
import { decodeHeader, startX402Gateway, timesPaid, withPayment, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();
const NOWHERE = `0x${'ab'.repeat(32)}`;
const CONFLICT = [409, 'PAYMENT_IDENTIFIER_CONFLICT'];

/** What names no transaction, and what names it; `x402-settle.test.ts` has all such answers. */
const LOST = LOST_SETTLES.filter(([name]) => name === '500' || name === 'settlement_pending');

/** Nobody waits for confirmations: what is not deep enough when it is settled is left to repeats and the reconciler. */
const start = (t: Parameters<typeof startX402Gateway>[0]) =>
  startX402Gateway(t, chain, {}, { confirmationTimeoutMs: 0 });

const settles = ({ facilitator }: X402Gateway) =>
  facilitator.calls.filter(({ endpoint }) => endpoint === 'settle').length;
const transactionOf = ({ headers }: Reply) => decodeHeader(headers.get('payment-response')).transaction;

test('R25: a deposit whose settle response is lost is credited to its own request', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  mineSteadily(t, chain);
  for (const [name, fault] of [...LOST, ['another transaction', anotherTransaction(NOWHERE)] as const]) {
    const payer = await wallet(chain.client, 1_000_000n);
    gateway.facilitator.faults.settle(fault);
    const { reply } = await payDeposit(gateway, payer);
    t.strictSame(told(reply), [200, DEPOSIT, false], name);
    t.equal(transactionOf(reply), gateway.facilitator.broadcasts.at(-1), name);
    t.equal(await timesPaid(chain, payer), 1);
    await assertCredited(gateway, payer, [DEPOSIT]);
  }
});

test('R25: an unconfirmed deposit without a settle response is 409, then credited once', { skip }, async (t) => {
  const gateway = await start(t);
  for (const [name, fault] of LOST) {
    const payer = await wallet(chain.client, 1_000_000n);
    gateway.facilitator.faults.settle(fault);
    const before = settles(gateway);
    const { reply, paid } = await payDeposit(gateway, payer);
    t.strictSame(await doubtfulTurn(gateway), ['done', 0], `${name}: R44: included is not confirmed`);
    for (const answer of [reply, await gateway.call(DEPOSIT_PATH, paid)]) {
      t.strictSame(told(answer), [409, 'PAYMENT_REPLAY_PENDING'], name);
      t.equal(answer.json.error.details.transaction, gateway.facilitator.broadcasts.at(-1));
      t.match(answer.headers.get('retry-after') ?? '', /^[1-9]\d?$/);
    }
    await assertCredited(gateway, payer, []);
    await chain.client.mine({ blocks: 1 });
    t.strictSame(await doubtfulTurn(gateway), ['done', 1], name);
    t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true], name);
    t.equal(settles(gateway) - before, 1);
    t.equal(await timesPaid(chain, payer), 1);
    await assertCredited(gateway, payer, [DEPOSIT]);
  }
  t.equal(await gateway.revenue(), BigInt(LOST.length * DEPOSIT));
});

test('R23: a refused deposit is blocked with 402, and credited once if it lands', { skip }, async (t) => {
  const gateway = await start(t);
  const payer = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.settle(refused('insufficient_funds'));
  const { reply, paid, payload } = await payDeposit(gateway, payer);
  for (const answer of [reply, await gateway.call(DEPOSIT_PATH, paid)]) {
    t.strictSame(told(answer), [402, 'PAYMENT_REQUIRED']);
    const challenge = decodeHeader(answer.headers.get('payment-required'));
    t.strictSame([challenge.error, challenge.accepts[0].amount], ['insufficient_funds', String(DEPOSIT)]);
    t.equal(decodeHeader(answer.headers.get('payment-response')).success, false);
  }
  t.strictSame(await paymentStates(gateway), ['refused']);
  const fresh = await signDeposit(gateway, payer);
  for (const misuse of [
    { ...payload, payload: fresh.payload },
    { ...fresh, payload: payload.payload },
  ]) {
    t.strictSame(told(await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), misuse))), CONFLICT);
  }

  const transaction = await land(chain, payload);
  t.strictSame(await doubtfulTurn(gateway), ['done', 0]);
  await assertCredited(gateway, payer, []);
  const landed = await gateway.call(DEPOSIT_PATH, paid);
  t.strictSame(
    [...told(landed), landed.json.error.details.transaction],
    [409, 'PAYMENT_REPLAY_PENDING', transaction],
    'whoever has paid is not asked to pay again',
  );
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  const repeat = await gateway.call(DEPOSIT_PATH, paid);
  t.strictSame([...told(repeat), transactionOf(repeat)], [200, 0, true, transaction]);
  t.equal(gateway.facilitator.broadcasts.length, 0);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R23: a deposit that a facilitator without gas refuses is 502, and is credited if it lands', {
  skip,
}, async (t) => {
  const gateway = await start(t);
  const payer = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.verify(invalid('invalid_exact_evm_insufficient_balance'));
  const unverified = await payDeposit(gateway, payer);
  t.strictSame(told(unverified.reply), [502, 'PAYMENT_ERROR']);
  t.equal(unverified.reply.json.error.details.payment.state, 'not_charged');
  gateway.facilitator.faults.settle(refused('invalid_exact_evm_insufficient_balance'));
  const { reply, paid, payload } = await payDeposit(gateway, payer);
  for (const answer of [reply, await gateway.call(DEPOSIT_PATH, paid)]) {
    t.strictSame(told(answer), [502, 'PAYMENT_ERROR']);
    t.equal(answer.json.error.details.payment.state, 'unknown');
  }
  await land(chain, payload);
  await chain.client.mine({ blocks: 1 });
  await until(async () => (await gateway.call(DEPOSIT_PATH, paid)).status === 200);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R35: each deposit is credited from its own transfer if settle names another', { skip }, async (t) => {
  const gateway = await start(t);
  const payer = await wallet(chain.client, 1_000_000n);
  const first = await payDeposit(gateway, payer);
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  const [transaction] = gateway.facilitator.broadcasts as [string];

  gateway.facilitator.faults.settle(onlyClaimed(transaction), anotherTransaction(transaction));
  const lie = await payDeposit(gateway, payer);
  const second = await payDeposit(gateway, payer);
  for (const { reply, paid } of [lie, second]) {
    t.equal(reply.status, 409);
    t.equal((await gateway.call(DEPOSIT_PATH, paid)).status, 409);
  }
  await assertCredited(gateway, payer, [DEPOSIT]);
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);

  const receipts = [await gateway.call(DEPOSIT_PATH, first.paid), await gateway.call(DEPOSIT_PATH, second.paid)];
  t.strictSame(receipts.map(transactionOf), gateway.facilitator.broadcasts);
  t.equal((await gateway.call(DEPOSIT_PATH, lie.paid)).status, 409);
  t.equal(await timesPaid(chain, payer), 2);
  await assertCredited(gateway, payer, [DEPOSIT, DEPOSIT]);
});

// The last one, since its chain's clock runs ahead of the payers' in the end.
test('R44: a deposit that never lands is 402 once validBefore is finalized', { skip }, async (t) => {
  const gateway = await start(t);
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
