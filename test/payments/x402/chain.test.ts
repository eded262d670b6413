import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import { encodeFunctionData, multicall3Abi } from 'viem';
import type { NodeUrls } from '../../../src/config/x402-settings.ts';
import { Chain, type TransferClaim } from '../../../src/payments/x402/chain.ts';
import { RpcError } from '../../../src/payments/x402/rpc.ts';
import { MULTICALL } from '../../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi } from '../../../src/sandbox/chain/fund.ts';
import {
  cancelAuthorization,
  included,
  type SignedAuthorization,
  signAuthorization,
  submitAuthorization,
  termsOf,
  testChain,
  wallet,
} from '../../support/chain.ts';
import { narrow, startRpcNode, unfinalized } from '../../support/rpc-node.ts';

const { chain, skip } = await testChain();
const PAYEE = '0x00000000000000000000000000000000000000a1';
const OTHER = '0x00000000000000000000000000000000000000b2';

function reader(t: Test, chainId = 8453, urls: NodeUrls = [chain.rpcUrl]) {
  const { asset } = chain;
  const opened = new Chain(urls, {
    network: `eip155:${chainId}`,
    chainId,
    address: asset,
    name: 'USD Coin',
    version: '2',
  });
  t.teardown(() => opened.close());
  return opened;
}

const claimOf = ({ authorization }: SignedAuthorization): TransferClaim => ({
  payer: authorization.from.toLowerCase() as `0x${string}`,
  nonce: authorization.nonce,
  payTo: authorization.to.toLowerCase() as `0x${string}`,
  amount: authorization.value,
  validBefore: authorization.validBefore,
});

test('R25: a used authorization is found with its transfer once included', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1000n);
  const signed = await signAuthorization(payer, { to: PAYEE, value: 198n });
  const from = await chain.client.getBlockNumber();
  t.strictSame(await reader(t).find(claimOf(signed), from), { outcome: 'open' });
  const transaction = await included(chain.client, submitAuthorization(chain.client, payer, signed));
  const { logs } = await chain.client.getTransactionReceipt({ hash: transaction });
  const finding = await reader(t).find(claimOf(signed), from);
  assert.equal(finding.outcome, 'paid');
  assert.equal(finding.proof.transaction, transaction);
  assert.equal(finding.proof.logIndex, logs[1]?.logIndex);
  t.strictSame((await reader(t).prove(claimOf(signed), transaction))?.proof, finding.proof);
});

test('R25: an authorization used for another transfer is finally unused for ours', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1000n);
  const ours = await signAuthorization(payer, { to: PAYEE, value: 198n });
  const theirs = await signAuthorization(payer, { to: OTHER, value: 198n, nonce: ours.authorization.nonce });
  const from = await chain.client.getBlockNumber();
  await included(chain.client, submitAuthorization(chain.client, payer, theirs));
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await reader(t).find(claimOf(ours), from), { outcome: 'open' }, 'the use is not finalized');
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await reader(t).find(claimOf(ours), from), { outcome: 'unused' });
});

test('R25: each transfer of a shared transaction proves only its own authorization', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1000n);
  const paid = await signAuthorization(payer, { to: PAYEE, value: 198n });
  const promised = await signAuthorization(payer, { to: PAYEE, value: 198n });
  const diverted = await signAuthorization(payer, { to: OTHER, value: 198n, nonce: promised.authorization.nonce });
  const from = await chain.client.getBlockNumber();
  const calls = [diverted, paid].map((signed) => ({
    target: chain.asset,
    allowFailure: false,
    callData: encodeFunctionData({
      abi: usdCoinAbi,
      functionName: 'transferWithAuthorization',
      args: [...termsOf(signed), signed.signature],
    }),
  }));
  const sent = chain.client.writeContract({
    account: payer,
    address: MULTICALL,
    abi: multicall3Abi,
    functionName: 'aggregate3',
    args: [calls],
  });
  await included(chain.client, sent);
  t.equal((await reader(t).find(claimOf(paid), from)).outcome, 'paid');
  t.not((await reader(t).find(claimOf(promised), from)).outcome, 'paid');
});

test('R25: a cancelled authorization is unused once the cancellation is finalized', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1000n);
  const signed = await signAuthorization(payer, { to: PAYEE, value: 198n });
  const from = await chain.client.getBlockNumber();
  await included(chain.client, cancelAuthorization(chain.client, payer, signed.authorization.nonce));
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await reader(t).find(claimOf(signed), from), { outcome: 'open' });
  await chain.client.mine({ blocks: 1 });
  t.strictSame(await reader(t).find(claimOf(signed), from), { outcome: 'unused' });
});

test('a node of another chain and an unreachable node are RpcErrors', { skip }, async (t) => {
  await assert.rejects(reader(t, 1).head(), RpcError);
  const away = new Chain(['http://127.0.0.1:1'], {
    network: 'eip155:1',
    chainId: 1,
    address: OTHER,
    name: '',
    version: '',
  });
  t.teardown(() => away.close());
  await assert.rejects(away.balanceOf(PAYEE), RpcError);
});

test('R25: a payment is found by a node that gives the logs of few blocks at once', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1000n);
  const signed = await signAuthorization(payer, { to: PAYEE, value: 198n });
  const from = await chain.client.getBlockNumber();
  await chain.client.mine({ blocks: 430 });
  const transaction = await included(chain.client, submitAuthorization(chain.client, payer, signed));
  const refusals = [
    { status: 400 },
    { status: 400, error: { code: -32600, message: 'Under the Free tier plan, you can make requests with 10 blocks' } },
    { status: 413 },
    { status: 503, error: { code: -32000, message: 'query timeout exceeded' } },
    { error: { code: -32005, message: 'query returned more than 10000 results' } },
    { error: { code: -32600, message: 'eth_getLogs is limited to a 400 range' } },
    { error: { code: -32602, message: 'block range too wide' } },
    { error: { code: -32000, message: 'exceed maximum block range: 100' } },
    { error: { code: -32701, message: 'Please specify an address' } },
  ];
  const node = await startRpcNode(t, chain.rpcUrl);
  for (const [index, refusal] of refusals.entries()) {
    const blocks = [10, 100][index] ?? 400;
    node.falsehood = narrow(blocks, refusal);
    node.calls.length = 0;
    const found = await reader(t, 8453, [node.url]).find(claimOf(signed), from);
    t.match(found, { outcome: 'paid', proof: { transaction } }, JSON.stringify(refusal));
    const calls = node.calls.filter((method) => method === 'eth_getLogs').length;
    t.ok(calls < 20 + 1000 / blocks, `${calls} calls`);
  }
  node.falsehood = narrow(0, { error: { code: -32601, message: 'no logs here' } });
  const silent = reader(t, 8453, [node.url]);
  await assert.rejects(silent.find(claimOf(signed), from), RpcError);
  t.match(await silent.find(claimOf(signed), from, transaction), { outcome: 'paid', proof: { transaction } });
});

// The last one, since it leads the chain's clock into the future.
test('R44: an unused authorization expires by a finalized block, 2 nodes or an hour', { skip }, async (t) => {
  const payer = await wallet(chain.client, 1000n);
  const { timestamp } = await chain.client.getBlock();
  const signed = await signAuthorization(payer, { to: PAYEE, value: 198n, validBefore: timestamp + 500n });
  const from = await chain.client.getBlockNumber();
  const node = await startRpcNode(t, chain.rpcUrl, unfinalized);
  const find = () => reader(t).find(claimOf(signed), from);
  const findUnfinalized = async (nodes: number) => {
    const urls = [node.url, `${node.url}second`].slice(0, nodes) as [string];
    return (await reader(t, 8453, urls).find(claimOf(signed), from)).outcome;
  };
  const mineAt = async (seconds: bigint) => {
    await chain.client.setNextBlockTimestamp({ timestamp: timestamp + seconds });
    await chain.client.mine({ blocks: 1 });
  };
  await mineAt(500n);
  await mineAt(501n);
  await mineAt(502n);
  // The finalized block is at validBefore, and not past it; the one that is 2 deep is.
  t.strictSame(await find(), { outcome: 'open' });
  t.strictSame([await findUnfinalized(1), await findUnfinalized(2)], ['open', 'unused']);
  await mineAt(503n);
  t.strictSame(await find(), { outcome: 'unused' });
  await mineAt(500n + 3600n);
  await mineAt(500n + 3601n);
  t.equal(await findUnfinalized(1), 'open');
  await mineAt(500n + 3602n);
  t.equal(await findUnfinalized(1), 'unused');
  // The sandbox's chain has half a minute for each request.
  for (let mined = 0; mined < 2500; mined += 500) await chain.client.mine({ blocks: 500 });
  t.strictSame(await find(), { outcome: 'unused' });
});
