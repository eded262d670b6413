import { mock } from 'node:test';
import { sql } from 'kysely';
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
  DEPOSIT_PATH,
  depositOf,
  doubtfulTurn,
  land,
  payDeposit,
  paymentStates,
  payUnknown,
  sendDeposit,
  signDeposit,
  told,
} from '../support/deposit.ts';
import type { Reply } from '../support/gateway.ts';
import { domainOf, withCredential } from '../support/prepaid.ts';
import { denial, type Falsehood, failing, narrow, startRpcNode } from '../support/rpc-node.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';
import { challengeOf, HELLO, payFor, sign, startX402Gateway, withPayment, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

/** Nobody waits for confirmations. */
const IMPATIENT = { confirmationTimeoutMs: 0 };

/** What the reconciler of failed payments did in one turn. */
async function failedTurn({ app }: X402Gateway) {
  const result = (await app.reconcilers.turn()).find(({ name }) => name === 'failed_payments');
  return [result?.outcome, result?.count];
}

/** A paid payment whose answer was lost, and whose authorization ended long ago, so that nothing but its use counts. */
async function lost(gateway: X402Gateway, pay: () => ReturnType<typeof payFor>) {
  const paid = await payUnknown(gateway, chain, pay);
  await unguarded(gateway.db, (db) => sql`update x402_payment set valid_before = 1`.execute(db));
  await chain.client.mine({ blocks: 3 });
  return paid;
}

const aDayLater = ({ db }: X402Gateway) =>
  unguarded(db, (trx) =>
    sql`
      update x402_payment set next_look_at = next_look_at - interval '1 day', failed_at = failed_at - interval '1 day'`.execute(
      trx,
    ),
  );

for (const [order, isFirst] of [
  ['before', true],
  ['after', false],
] as const) {
  test(`a node that denies every payment, ${order} an honest one, loses no deposit`, { skip }, async (t) => {
    const liar = await startRpcNode(t, chain.rpcUrl, denial);
    const urls = isFirst ? [liar.url, chain.rpcUrl] : [chain.rpcUrl, liar.url];
    const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: urls.join(',') }, IMPATIENT);
    const payer = await wallet(chain.client, 1_000_000n);
    await lost(gateway, () => payDeposit(gateway, payer));
    t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
    await assertCredited(gateway, payer, [DEPOSIT]);
  });
}

test('a payment that one node denies has not failed while another node is down', { skip }, async (t) => {
  const liar = await startRpcNode(t, chain.rpcUrl, denial);
  const other = await startRpcNode(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: `${liar.url},${other.url}` }, IMPATIENT);
  const payer = await wallet(chain.client, 1_000_000n);
  await lost(gateway, () => payDeposit(gateway, payer));
  other.falsehood = failing;
  t.strictSame(await doubtfulTurn(gateway), ['done', 0]);
  t.strictSame(await paymentStates(gateway), ['unknown']);
  other.falsehood = () => undefined;
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('a deposit that the only node denies is credited once, by the check a day later', { skip }, async (t) => {
  const node = await startRpcNode(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url }, IMPATIENT);
  const payer = await wallet(chain.client, 1_000_000n);
  const { paid } = await lost(gateway, () => payDeposit(gateway, payer));
  node.falsehood = denial;
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  t.strictSame(await paymentStates(gateway), ['failed']);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [402, 'PAYMENT_REQUIRED']);

  node.falsehood = () => undefined;
  node.calls.length = 0;
  t.strictSame(await failedTurn(gateway), ['done', 0], 'a day has not passed');
  t.strictSame(node.calls, []);
  await aDayLater(gateway);
  node.falsehood = failing;
  t.strictSame(await failedTurn(gateway), ['failed', 0], 'no answer is not the last word');
  await aDayLater(gateway);
  node.falsehood = () => undefined;
  t.strictSame(await failedTurn(gateway), ['done', 1]);
  await aDayLater(gateway);
  t.strictSame(await failedTurn(gateway), ['done', 0]);
  await assertCredited(gateway, payer, [DEPOSIT]);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true]);
});

test('a node that gives few logs or none leaves no payment in doubt', { skip }, async (t) => {
  const node = await startRpcNode(t, chain.rpcUrl);
  const env = { X402_RPC_URL: node.url, LOG_LEVEL: 'warn' };
  const gateway = await startX402Gateway(t, chain, env, { ...IMPATIENT, inclusionTimeoutMs: 0 });
  const payer = await wallet(chain.client, 1_000_000n);
  await chain.client.mine({ blocks: 64 });
  await payUnknown(gateway, chain, () => payDeposit(gateway, payer));
  await payUnknown(gateway, chain, () => payFor(gateway, payer));
  await chain.client.mine({ blocks: 3 });
  node.falsehood = narrow(10, { status: 400 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 2]);
  t.strictSame(await paymentStates(gateway), ['settled', 'settled']);
  const lines = gateway.log.filter(({ msg }) =>
    msg.startsWith('a chain node returned logs only for a smaller range of blocks'),
  );
  t.equal(lines.length, 1);
  t.ok(Number(lines[0]?.blocks) >= 5 && Number(lines[0]?.blocks) <= 10, JSON.stringify(lines));
  t.equal(lines[0]?.node, '1 of 1');

  // The facilitator has named the transaction.
  node.falsehood = narrow(0, { status: 400 });
  const { reply } = await payDeposit(gateway, payer);
  t.equal(reply.status, 409);
  await chain.client.mine({ blocks: 3 });
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  await assertCredited(gateway, payer, [DEPOSIT, DEPOSIT]);
});

test('a failed payment is checked once more after a day, with 4 calls of the node', { skip }, async (t) => {
  const node = await startRpcNode(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url }, IMPATIENT);
  gateway.facilitator.faults.settle({ broadcast: false, answer: 'error' });
  await payDeposit(gateway, await wallet(chain.client, 1_000_000n));
  await unguarded(gateway.db, (db) => sql`update x402_payment set valid_before = 1`.execute(db));
  await chain.client.mine({ blocks: 3 });
  const verdict = ['eth_blockNumber', 'eth_getLogs', 'eth_getBlockByNumber', 'eth_call'];
  node.calls.length = 0;
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  t.strictSame(node.calls, verdict);
  await aDayLater(gateway);
  node.calls.length = 0;
  t.strictSame(await failedTurn(gateway), ['done', 0]);
  t.strictSame(node.calls, verdict);
  await aDayLater(gateway);
  t.strictSame(await failedTurn(gateway), ['done', 0]);
  t.equal(node.calls.length, verdict.length, 'it has failed for good');
  t.strictSame(await paymentStates(gateway), ['failed']);
});

const DOMAIN_SEPARATOR = '0x3644e515';

/** What the token says of its EIP-712 domain. */
const domainIs =
  (lie: { result: unknown } | { error: object }): Falsehood =>
  ({ method, params }) =>
    method === 'eth_call' && (params[0] as { data: string }).data === DOMAIN_SEPARATOR ? lie : undefined;

const refusalOf = ({ status, json }: Reply) => [status, json.error.code, json.error.details.reason];
const OTHER_DOMAIN = [503, 'CONFIG_ERROR', 'token_domain'];

/** What the token's domain is, the name that is configured, the status of a challenge, and the level of the log line. */
const DOMAINS: [string, Falsehood, string, number, string | undefined][] = [
  ['the configured domain', () => undefined, 'USD Coin', 402, undefined],
  ['another domain', () => undefined, 'USDC', 503, 'error'],
  ['an empty domain', domainIs({ result: '0x' }), 'USD Coin', 402, 'warn'],
  ['no domain', domainIs({ error: { code: 3, message: 'execution reverted' } }), 'USD Coin', 402, 'warn'],
];

for (const [name, falsehood, assetName, status, level] of DOMAINS) {
  test(`R58: a token with ${name} makes challenges ${status}`, { skip }, async (t) => {
    const node = await startRpcNode(t, chain.rpcUrl, falsehood);
    const env = { X402_RPC_URL: node.url, X402_ASSET_NAME: assetName, LOG_LEVEL: 'warn' };
    const gateway = await startX402Gateway(t, chain, env);
    await gateway.app.start('worker');
    for (const [path, call] of [
      ['/x402/tts', HELLO],
      ['/x402/tts?text=Hello', {}],
      [DEPOSIT_PATH, depositOf(DEPOSIT)],
    ] as const) {
      const reply = await gateway.call(path, call);
      t.equal(reply.status, status, path);
      if (status === 503) t.strictSame(refusalOf(reply), OTHER_DOMAIN);
    }
    const lines = gateway.log.filter(({ msg }) => /EIP-712/.test(msg));
    t.strictSame(
      lines.map((line) => line.level),
      level === undefined ? [] : [level],
    );
    const ready = await gateway.app.admin.inject({ url: '/readyz', headers: { host: 'localhost' } });
    t.equal(ready.statusCode, 200);
  });
}

test('R58: a node that answers later reports another domain, and former payments are served', { skip }, async (t) => {
  const node = await startRpcNode(t, chain.rpcUrl, failing);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url, LOG_LEVEL: 'warn' });
  t.teardown(() => mock.timers.reset());
  mock.timers.enable({ apis: ['setInterval'] });
  await gateway.app.start('worker');
  t.equal((await gateway.call('/x402/tts', HELLO)).status, 402, 'an unreachable node proves nothing');
  node.falsehood = () => undefined;
  const payer = await wallet(chain.client, 1_000_000n);
  const former = await payFor(gateway, payer);
  const payload = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  const deposit = withPayment(depositOf(DEPOSIT), await signDeposit(gateway, payer));
  node.falsehood = domainIs({ result: `0x${'1'.repeat(64)}` });
  mock.timers.tick(60_000);
  await until(async () => (await gateway.call('/x402/tts', HELLO)).status === 503);
  const lines = gateway.log.filter(({ msg }) => /^X402_/.test(msg)).map(({ msg }) => msg.split(':')[0]);
  t.strictSame(lines, ['X402_RPC_URL', 'X402_ASSET_NAME, X402_ASSET_VERSION']);
  const calls = gateway.facilitator.calls.length;
  t.strictSame(refusalOf(await gateway.call('/x402/tts', withPayment(HELLO, payload))), OTHER_DOMAIN);
  t.strictSame(refusalOf(await gateway.call(DEPOSIT_PATH, deposit)), OTHER_DOMAIN);
  t.equal(gateway.facilitator.calls.length, calls);
  t.equal((await gateway.call('/x402/tts', former.paid)).status, 200);
  const prepaid = await withCredential(payer, domainOf(gateway.payTo), '/x402/tts', HELLO);
  t.equal((await gateway.call('/x402/tts', prepaid)).status, 402, 'prepaid balances need no token domain');
  t.strictSame(await paymentStates(gateway), ['settled']);
});

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
