/** Hosts that give up on a call, and agents that ask for the same again. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Test, t, test } from 'tap';
import { cardCredits, directX402, prepaid, Speechgate } from '../../../src/callers/client/index.ts';
import { type CallTool, startMcpAgent } from '../../support/agent.ts';
import { prepaidCallerOf } from '../../support/caller.ts';
import { testChain, wallet } from '../../support/chain.ts';
import { listening, pinsOf, startPaidGateway } from '../../support/client.ts';
import { fundedWallet, startPrepaidGateway } from '../../support/prepaid.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { mp3, type StubUpstream } from '../../support/stub-upstream.ts';
import { until } from '../../support/until.ts';
import { timesPaid } from '../../support/x402.ts';
import { budgetPath, openBudget } from '../budget/support.ts';

const PRICE = 198;
const { chain, skip } = await testChain();

const gateway = await startPrepaidGateway(t, await listening(), { worker: true });

const FLOWS = {
  card: async () => {
    const account = await gateway.fund(100);
    return { pay: cardCredits(account), gateway, spent: async () => 1_000_000n - (await gateway.balance(account)) };
  },
  prepaid: async () => {
    const payer = await fundedWallet(gateway, 1_000_000n);
    return { pay: prepaid(payer.wallet), gateway, spent: async () => 1_000_000n - (await payer.balance()) };
  },
  direct: async (t: Test) => {
    const gateway = await startPaidGateway(t, chain);
    const payer = await wallet(chain.client, 1_000_000n);
    return { pay: directX402(payer), gateway, spent: async () => BigInt(PRICE * (await timesPaid(chain, payer))) };
  },
};

async function startAgent(t: Test, flow: keyof typeof FLOWS, lateMs?: number) {
  const payer = await FLOWS[flow](t);
  const { gateway, pay } = payer;
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, { totalMicroUsd: 10_000n });
  const client = new Speechgate({ baseUrl: gateway.config.baseUrl, pay, trust: pinsOf(gateway), budget });
  const parts = { client, budget, flow, ...(lateMs !== undefined && { lateMs }) };
  const { call } = await startMcpAgent(t, dirname(path), parts);
  return { ...payer, budget, call: async (...of: Parameters<CallTool>) => (await call(...of)).data };
}

/** Speech that the upstream answers once it is told to. */
function heldBack(upstream: StubUpstream): () => void {
  let release = () => {};
  const released = new Promise<void>((resolve) => (release = resolve));
  upstream.mode = (request, response) => void released.then(() => mp3()(request, response));
  return () => {
    upstream.mode = mp3();
    release();
  };
}

for (const flow of ['card', 'prepaid', 'direct'] as const) {
  const options = { skip: flow === 'direct' && skip };
  test(`${flow}: a canceled call that the agent repeats is paid once`, options, async (t) => {
    const { gateway, call, spent, budget } = await startAgent(t, flow);
    const release = heldBack(gateway.upstream);
    const host = new AbortController();
    const arrived = gateway.upstream.waitForRequests(gateway.upstream.requests.length + 1);
    const first = call('speak', { text: 'Hello world' }, { signal: host.signal });
    await arrived;
    host.abort();
    await t.rejects(first);
    await until(async () => (await call('balance')).openPurchases.length === 1);
    const [open] = (await call('balance')).openPurchases;
    t.strictSame([open.flow, open.maxUsd], [flow, '0.000198']);
    const second = call('speak', { text: ' Hello world\n', speed: 1 });
    release();
    const { path, receipt } = await second;
    t.equal(receipt.isReplay, true);
    t.strictSame(await readFile(path), Buffer.from(silentMp3(1000)));
    t.equal(await spent(), BigInt(PRICE));
    const { spentMicroUsd, reservedMicroUsd } = await budget.read();
    t.strictSame([spentMicroUsd, reservedMicroUsd], [BigInt(PRICE), 0n]);
    t.strictSame((await call('balance')).openPurchases, []);
  });
}

test('two identical calls at the same time, and one after a slow response, are one purchase', async (t) => {
  const { gateway, call, spent } = await startAgent(t, 'prepaid', 0);
  const release = heldBack(gateway.upstream);
  const arrived = gateway.upstream.waitForRequests(gateway.upstream.requests.length + 1);
  const calls = [call('speak', { text: 'Hello world' }), call('speak', { text: 'Hello world' })];
  await arrived;
  release();
  const told = await Promise.all(calls);
  t.equal(new Set(told.map(({ path }) => path)).size, 2);
  t.strictSame(told.map(({ receipt }) => receipt.isReplay).sort(), [false, true]);
  t.equal((await call('speak', { text: 'Hello world' })).receipt.isReplay, true);
  t.equal(await spent(), BigInt(PRICE));
});

test('a call repeated after a fast response is bought again', async (t) => {
  const { call, spent } = await startAgent(t, 'prepaid', 60_000);
  await call('speak', { text: 'Hello world' });
  t.equal((await call('speak', { text: 'Hello world' })).receipt.isReplay, false);
  t.equal(await spent(), BigInt(2 * PRICE));
});

// What an agent does about a purchase whose end it was not told.

const ORDER = { text: 'Hello world' };

/** An agent whose connection loses requests or answers when told to. */
async function startCutAgent(t: Test) {
  const caller = await prepaidCallerOf(t, gateway, 10_000n);
  const { wallet, budgetPath } = caller;
  const line = { loses: 'nothing' as 'nothing' | 'requests' | 'budget' };
  const send: typeof fetch = async (input, init) => {
    const isSpeech = (input instanceof Request ? input.url : String(input)).endsWith('/x402/tts');
    if (isSpeech && line.loses === 'requests') throw new TypeError('the line is cut');
    const response = await fetch(input, init);
    if (isSpeech && line.loses === 'budget') await writeFile(budgetPath, 'no budget\n');
    return response;
  };
  const budget = await openBudget(t, budgetPath, { totalMicroUsd: 1000n });
  const trust = pinsOf(gateway);
  const client = new Speechgate({
    ...{ baseUrl: gateway.url, pay: prepaid(wallet), trust, budget, fetch: send, timeoutMs: 300 },
  });
  const { call } = await startMcpAgent(t, dirname(budgetPath), { client, budget, flow: 'prepaid' });
  return { ...caller, budget, line, speak: (args: object) => call('speak', args) };
}

/** The identifier that the agent is told to resume. */
const toResume = (text: string): string => /\{"resume": "([^"]+)"\}/.exec(text)?.[1] ?? assert.fail(text);

test('resuming a request that never arrived buys it once', async (t) => {
  const { budget, line, speak, balance } = await startCutAgent(t);
  line.loses = 'requests';
  const identifier = toResume((await speak(ORDER)).text);
  t.equal((await budget.read()).reservedMicroUsd, 198n);
  t.equal(toResume((await speak({ resume: identifier })).text), identifier, 'still unknown');
  line.loses = 'nothing';
  const { data } = await speak({ resume: identifier, file: 'late' });
  t.strictSame(await readFile(data.path), Buffer.from(silentMp3(1000)));
  t.strictSame([data.priceUsd, data.budgetLeftUsd], ['0.000198', '0.000802']);
  t.match((await speak({ resume: identifier })).text, /resume must be the identifier of an open purchase, not /);
  t.equal(await balance(), 10_000n - 198n);
});

test('paid speech is written even if the budget cannot be read any more', async (t) => {
  const { line, speak, balance } = await startCutAgent(t);
  line.loses = 'budget';
  const { text, data } = await speak(ORDER);
  t.strictSame(await readFile(data?.path ?? assert.fail(text)), Buffer.from(silentMp3(1000)));
  t.strictSame([data.priceUsd, data.budgetLeftUsd], ['0.000198', null]);
  t.equal(await balance(), 10_000n - 198n);
});
