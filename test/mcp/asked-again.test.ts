/** Hosts that give up on a call, and agents that ask for the same again. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { type Test, test } from 'tap';
import { keptSpeech } from '../../src/cli/caller/kept-purchases.ts';
import { cardCredits, directX402, type PaymentWay, prepaid, Speechgate } from '../../src/client/index.ts';
import { createMcpServer } from '../../src/mcp/server.ts';
import { SpeechFolder } from '../../src/mcp/speech-folder.ts';
import { openBudget } from '../budget/support.ts';
import { testChain, wallet } from '../support/chain.ts';
import { listening, pinsOf, startCardGateway, startPaidGateway } from '../support/client.ts';
import { depositor, startPrepaidGateway } from '../support/prepaid.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { mp3, type StubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { timesPaid } from '../support/x402.ts';

const PRICE = 198;
const { chain, skip } = await testChain();

interface Payer {
  readonly pay: PaymentWay;
  readonly gateway: Parameters<typeof pinsOf>[0] & { readonly upstream: StubUpstream };
  /** Micro-USD. */
  spent(): Promise<bigint>;
}

const FLOWS: Readonly<Record<'card' | 'prepaid' | 'direct', (t: Test) => Promise<Payer>>> = {
  card: async (t) => {
    const gateway = await startCardGateway(t);
    const account = await gateway.fund(100);
    return { pay: cardCredits(account), gateway, spent: async () => 1_000_000n - (await gateway.balance(account)) };
  },
  prepaid: async (t) => {
    const gateway = await startPrepaidGateway(t, await listening());
    const payer = await depositor(gateway, 1_000_000n);
    return { pay: prepaid(payer.wallet), gateway, spent: async () => 1_000_000n - (await payer.balance()) };
  },
  direct: async (t) => {
    const gateway = await startPaidGateway(t, chain);
    const payer = await wallet(chain.client, 1_000_000n);
    return { pay: directX402(payer), gateway, spent: async () => BigInt(PRICE * (await timesPaid(chain, payer))) };
  },
};

async function startAgent(t: Test, flow: keyof typeof FLOWS, lateMs?: number) {
  const payer = await FLOWS[flow](t);
  const { gateway, pay } = payer;
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'speechgate-mcp-')));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const budgetPath = join(await mkdtemp(join(tmpdir(), 'speechgate-budget-')), 'budget.jsonl');
  t.teardown(() => rm(dirname(budgetPath), { recursive: true, force: true }));
  const budget = await openBudget(t, budgetPath, { totalMicroUsd: 10_000n });
  const client = new Speechgate({ baseUrl: gateway.config.baseUrl, pay, trust: pinsOf(gateway), budget });
  const kept = keptSpeech(dirname(budgetPath));
  const server = createMcpServer({
    ...{ client, budget, kept, flow, folder: await SpeechFolder.open(folder) },
    ...(lateMs !== undefined && { lateMs }),
  });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(ours);
  const agent = new Client({ name: 'agent', version: '1' });
  await agent.connect(theirs);
  t.teardown(() => agent.close());
  const call = async (name: string, args: object = {}, options: object = {}) => {
    const result = await agent.callTool({ name, arguments: { ...args } }, undefined, options);
    // biome-ignore lint/suspicious/noExplicitAny: what came back is what is tested.
    return result.structuredContent as any;
  };
  return { ...payer, budget, call };
}

/** Speech that the upstream answers once it is told to. */
function heldBack(upstream: StubUpstream): () => void {
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  upstream.mode = (request, response) => void released.then(() => mp3()(request, response));
  return release;
}

for (const flow of ['card', 'prepaid', 'direct'] as const) {
  const options = { skip: flow === 'direct' && skip };

  test(`${flow}: what a host has cancelled and the agent asks for again is paid once`, options, async (t) => {
    const { gateway, call, spent, budget } = await startAgent(t, flow);
    const release = heldBack(gateway.upstream);
    const host = new AbortController();
    const first = call('speak', { text: 'Hello world' }, { signal: host.signal });
    await gateway.upstream.waitForRequests(1);
    host.abort();
    await assert.rejects(first);
    await until(async () => (await call('balance')).openPurchases.length === 1);
    const [open] = (await call('balance')).openPurchases;
    assert.deepEqual([open.flow, open.maxUsd], [flow, '0.000198']);
    const second = call('speak', { text: ' Hello world\n', speed: 1 });
    release();
    const { path } = await second;
    assert.deepEqual(await readFile(path), Buffer.from(silentMp3(1000)));
    assert.equal(await spent(), BigInt(PRICE));
    const { spentMicroUsd, reservedMicroUsd } = await budget.read();
    assert.deepEqual([spentMicroUsd, reservedMicroUsd], [BigInt(PRICE), 0n]);
    assert.deepEqual((await call('balance')).openPurchases, []);
  });

  test(`${flow}: an order that is asked for while it runs is one purchase`, options, async (t) => {
    const { gateway, call, spent } = await startAgent(t, flow);
    const release = heldBack(gateway.upstream);
    const calls = [call('speak', { text: 'Hello world' }), call('speak', { text: 'Hello world' })];
    await gateway.upstream.waitForRequests(1);
    release();
    const told = await Promise.all(calls);
    assert.equal(new Set(told.map(({ path }) => path)).size, 2);
    assert.deepEqual(told.map(({ receipt }) => receipt.isReplay).sort(), [false, true]);
    assert.equal(await spent(), BigInt(PRICE));
  });
}

test('speech that came late is held for an agent whose host gave up silently', async (t) => {
  const { call, spent } = await startAgent(t, 'prepaid', 0);
  await call('speak', { text: 'Hello world' });
  const again = await call('speak', { text: 'Hello world' });
  assert.equal(again.receipt.isReplay, true);
  assert.equal(await spent(), BigInt(PRICE));
});

test('speech that came at once is bought anew', async (t) => {
  const { call, spent } = await startAgent(t, 'prepaid', 60_000);
  await call('speak', { text: 'Hello world' });
  assert.equal((await call('speak', { text: 'Hello world' })).receipt.isReplay, false);
  assert.equal(await spent(), BigInt(2 * PRICE));
});
