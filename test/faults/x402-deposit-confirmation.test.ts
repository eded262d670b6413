import { sql } from 'kysely';
import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  awaitedTransaction,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  doubtfulTurn,
  land,
  payDeposit,
  paymentStates,
  sendDeposit,
  signDeposit,
  told,
} from '../support/deposit.ts';
import { rawTransaction, reorganize } from '../support/reorganize.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import { decodeHeader, startX402Gateway, timesPaid, withPayment, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();
const PENDING = [409, 'PAYMENT_REPLAY_PENDING'];

/** Nobody waits for confirmations: what is not deep enough when it is settled is left to repeats and the reconciler. */
const IMPATIENT = { confirmationTimeoutMs: 0 };
/** Long enough for a look at a head that is not the one of the reservation. */
const BRIEF = { confirmationTimeoutMs: 2_500 };

/** A paid deposit that waits for its transfer to be deep enough. */
async function startWaiting(gateway: X402Gateway) {
  const payer = await wallet(chain.client, 1_000_000n);
  const payload = await signDeposit(gateway, payer);
  const paid = withPayment(depositOf(DEPOSIT), payload);
  const pending = sendDeposit(gateway, paid);
  return { payer, payload, paid, pending, transaction: await awaitedTransaction(gateway, payload) };
}

test('R44: a deposit is credited only after another block confirms its inclusion', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { payer, paid, pending, transaction } = await startWaiting(gateway);
  t.strictSame([transaction], gateway.facilitator.broadcasts);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), PENDING, 'the first request is still running');
  t.strictSame(await doubtfulTurn(gateway), ['done', 0], 'the reconciler leaves it to the request');
  await assertCredited(gateway, payer, []);
  t.equal(pending.isAnswered(), false);
  await chain.client.mine({ blocks: 1 });
  const reply = await pending.reply;
  t.strictSame(told(reply), [200, DEPOSIT, false]);
  t.equal(decodeHeader(reply.headers.get('payment-response')).transaction, transaction);
  t.equal(await timesPaid(chain, payer), 1);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R35: an unconfirmed deposit is 409 with its transaction, then credited once', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, IMPATIENT);
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payDeposit(gateway, payer);
  const [transaction] = gateway.facilitator.broadcasts;
  for (const answer of [reply, await gateway.call(DEPOSIT_PATH, paid), await gateway.call(DEPOSIT_PATH, paid)]) {
    t.strictSame([...told(answer), answer.json.error.details.transaction], [...PENDING, transaction]);
  }
  t.strictSame(await doubtfulTurn(gateway), ['done', 0]);
  t.strictSame(await paymentStates(gateway), ['unknown']);
  await assertCredited(gateway, payer, []);

  await chain.client.mine({ blocks: 1 });
  let repeat = reply;
  await until(async () => {
    repeat = await gateway.call(DEPOSIT_PATH, paid);
    return repeat.status === 200;
  });
  t.strictSame(told(repeat), [200, DEPOSIT, false], 'it was this request that credited');
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true]);
  t.equal(decodeHeader(repeat.headers.get('payment-response')).transaction, transaction);
  t.equal(gateway.facilitator.calls.length, 2);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('concurrent reconcilers and retries credit a late deposit once', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, IMPATIENT);
  const payer = await wallet(chain.client, 1_000_000n);
  const { paid } = await payDeposit(gateway, payer);
  await chain.client.mine({ blocks: 1 });
  const repeats = Array.from({ length: 10 }, () => gateway.call(DEPOSIT_PATH, paid));
  await Promise.all([...repeats, doubtfulTurn(gateway), doubtfulTurn(gateway)]);
  await doubtfulTurn(gateway);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('a deposit that the reconciler takes over from a waiting request is credited once', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { payer, paid, pending } = await startWaiting(gateway);
  // As if the process had stood still for longer than its lease.
  await until(async () => {
    await sql`update x402_payment set lease_until = now() - interval '1 second' where state = 'settling'`.execute(
      gateway.db,
    );
    await doubtfulTurn(gateway);
    return (await paymentStates(gateway))[0] === 'unknown';
  });
  await chain.client.mine({ blocks: 1 });
  await doubtfulTurn(gateway);
  await assertCredited(gateway, payer, [DEPOSIT]);
  // The request looks at the chain too, and may be the first to see the block.
  const [status, credited, isAlreadyCredited] = told(await pending.reply);
  t.strictSame([status, credited], [200, isAlreadyCredited ? 0 : DEPOSIT]);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('a deposit undone by a reorganization is credited once after it lands again', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, BRIEF);
  const { payer, payload, paid, pending, transaction } = await startWaiting(gateway);
  await reorganize(chain.client, 1);
  await chain.client.mine({ blocks: 3 });
  t.strictSame(told(await pending.reply), PENDING);
  t.strictSame(await doubtfulTurn(gateway), ['done', 0]);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), PENDING);
  t.equal(await timesPaid(chain, payer), 0);
  await assertCredited(gateway, payer, []);

  const second = await land(chain, payload);
  t.not(second, transaction);
  t.strictSame(await doubtfulTurn(gateway), ['done', 0]);
  t.equal(await awaitedTransaction(gateway, payload), second);
  await assertCredited(gateway, payer, []);
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  const repeat = await gateway.call(DEPOSIT_PATH, paid);
  t.strictSame(told(repeat), [200, 0, true]);
  t.equal(decodeHeader(repeat.headers.get('payment-response')).transaction, second);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('a deposit whose transaction moves to another block is credited', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { payer, pending, transaction } = await startWaiting(gateway);
  const raw = await rawTransaction(chain.client, transaction);
  await reorganize(chain.client, 1);
  await chain.client.mine({ blocks: 2 });
  await chain.client.sendRawTransaction({ serializedTransaction: raw });
  await chain.client.mine({ blocks: 1 });
  const reply = await pending.reply;
  t.strictSame(told(reply), [200, DEPOSIT, false]);
  t.equal(decodeHeader(reply.headers.get('payment-response')).transaction, transaction);
  t.equal(await timesPaid(chain, payer), 1);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('a deposit that a reorganization moves below its reservation block is credited', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, IMPATIENT);
  const payer = await wallet(chain.client, 1_000_000n);
  await chain.client.mine({ blocks: 3 });
  const { reply, paid } = await payDeposit(gateway, payer);
  t.strictSame(told(reply), PENDING);
  const raw = await rawTransaction(chain.client, reply.json.error.details.transaction);
  await reorganize(chain.client, 3, [raw]);
  t.equal(await timesPaid(chain, payer), 1);
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('a deposit that waits through a node outage is credited after it', { skip }, async (t) => {
  const node = await startTcpProxy(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url });
  const { payer, pending } = await startWaiting(gateway);
  node.cut();
  await chain.client.mine({ blocks: 1 });
  t.equal(pending.isAnswered(), false);
  node.restore();
  t.strictSame(told(await pending.reply), [200, DEPOSIT, false]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R35: a shutdown answers waiting deposits, and another process credits them', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { payer, paid, pending, transaction } = await startWaiting(gateway);
  const closed = gateway.app.close();
  // Well within the 120 seconds of the wait.
  await until(pending.isAnswered);
  const reply = await pending.reply;
  t.strictSame([...told(reply), reply.json.error.details.transaction], [...PENDING, transaction]);
  await closed;

  const { databaseUrl } = gateway;
  const next = await startX402Gateway(t, chain, { X402_PAY_TO: gateway.payTo }, { databaseUrl });
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await doubtfulTurn(next), ['done', 1]);
  t.strictSame(told(await next.call(DEPOSIT_PATH, paid)), [200, 0, true]);
  await assertCredited(next, payer, [DEPOSIT]);
});
