import { type Test, test } from 'tap';
import { numberToHex } from 'viem';
import type { X402Config } from '../../src/config/x402-settings.ts';
import { openPayments } from '../../src/payments/x402/resolver.ts';
import { settleReceived } from '../../src/reconcile/received.ts';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  awaitedTransaction,
  DEPOSIT,
  depositOf,
  doubtfulTurn,
  land,
  payDeposit,
  paymentStates,
  sendDeposit,
  signDeposit,
  told,
} from '../support/deposit.ts';
import { denial, type Falsehood, startRpcNode } from '../support/rpc-node.ts';
import { startX402Gateway, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();
const PENDING = [409, 'PAYMENT_REPLAY_PENDING'];
const TIMEOUT = { confirmationTimeoutMs: 1_500 };

/** A node that has not heard of any block past this one. */
const behind =
  (head: bigint): Falsehood =>
  ({ method }) =>
    method === 'eth_blockNumber' ? { result: numberToHex(head) } : undefined;

/** A node whose chain has another block at the number of the newest transfer. */
const forked = async ({ method, params }: Parameters<Falsehood>[0], number: bigint) => {
  if (method !== 'eth_getBlockByNumber' || params[0] !== numberToHex(number)) return undefined;
  const { hash, timestamp } = await chain.client.getBlock({ blockNumber: number - 1n });
  return { result: { number: numberToHex(number), hash, timestamp: numberToHex(timestamp) } };
};

/** A gateway with a node that is ahead and denies every transfer, and one that shows them and is told what to hide. */
async function scene(t: Test, order: 'ahead first' | 'behind first') {
  const ahead = await startRpcNode(t, chain.rpcUrl, denial);
  const other = await startRpcNode(t, chain.rpcUrl);
  const urls = order === 'ahead first' ? [ahead.url, other.url] : [other.url, ahead.url];
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: urls.join() }, TIMEOUT);
  return { gateway, other, payer: await wallet(chain.client, 1_000_000n) };
}

for (const order of ['ahead first', 'behind first'] as const) {
  test(`R66: one node's head never confirms another node's receipt, ${order}`, { skip }, async (t) => {
    const { gateway, other, payer } = await scene(t, order);
    const payload = await signDeposit(gateway, payer);
    const paid = withPayment(depositOf(DEPOSIT), payload);
    let included: Promise<bigint> | undefined;
    // What is asked after the transfer hears no other head, however late the test learns of it.
    other.falsehood = async (call) => {
      if (gateway.facilitator.broadcasts.length === 0) return undefined;
      included ??= chain.client.getBlockNumber();
      return behind(await included)(call);
    };
    const pending = sendDeposit(gateway, paid);
    await awaitedTransaction(gateway, payload);
    included ??= chain.client.getBlockNumber();
    const block = await included;
    await chain.client.mine({ blocks: 5 });
    t.strictSame(told(await pending.reply), PENDING);
    t.strictSame(await doubtfulTurn(gateway), ['done', 0]);
    await assertCredited(gateway, payer, []);
    included = Promise.resolve(block + 1n);
    t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
    await assertCredited(gateway, payer, [DEPOSIT]);
  });
}

test('R66: a receipt from a block that its node has replaced is not confirmed', { skip }, async (t) => {
  const { gateway, other, payer } = await scene(t, 'ahead first');
  const payload = await signDeposit(gateway, payer);
  let block: bigint | undefined;
  other.falsehood = (call) => (block === undefined ? undefined : forked(call, block));
  const pending = sendDeposit(gateway, withPayment(depositOf(DEPOSIT), payload));
  await awaitedTransaction(gateway, payload);
  block = await chain.client.getBlockNumber();
  await chain.client.mine({ blocks: 5 });
  t.strictSame(told(await pending.reply), PENDING);
  t.strictSame(await doubtfulTurn(gateway), ['done', 0]);
  await assertCredited(gateway, payer, []);
  block = undefined;
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R66: a restored deposit is credited only when a single node confirms it', { skip }, async (t) => {
  const ahead = await startRpcNode(t, chain.rpcUrl);
  const other = await startRpcNode(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: ahead.url }, TIMEOUT);
  const payer = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.settle({ broadcast: false, answer: 'error' });
  const { payload } = await payDeposit(gateway, payer);
  await land(chain, payload);
  const included = await chain.client.getBlockNumber();
  await chain.client.mine({ blocks: 2 });
  // One shows the transfer as confirmed, and has no receipt when it is asked again; the other has not the next block.
  let receipts = 0;
  ahead.falsehood = ({ method }) =>
    method === 'eth_getTransactionReceipt' && receipts++ > 0 ? { result: null } : undefined;
  other.falsehood = behind(included);
  const config = gateway.config.x402 as X402Config;
  const payments = openPayments(gateway.db, config.asset, [ahead.url, other.url]);
  t.teardown(() => payments.chain.close());
  const look = () => settleReceived({ db: gateway.db, payments, ...config }, new Date(Date.now() - 60_000));
  t.equal((await look()).open.length, 1);
  t.strictSame(await paymentStates(gateway), ['unknown']);
  other.falsehood = behind(included + 1n);
  receipts = 0;
  t.equal((await look()).known.length, 1);
  await assertCredited(gateway, payer, [DEPOSIT]);
});
