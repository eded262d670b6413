/** What an agent does about a purchase whose end it was not told. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { type Test, test } from 'tap';
import { keptSpeech } from '../../src/cli/caller/kept-purchases.ts';
import { prepaid, Speechgate } from '../../src/client/index.ts';
import { createMcpServer } from '../../src/mcp/server.ts';
import { SpeechFolder } from '../../src/mcp/speech-folder.ts';
import { openBudget } from '../budget/support.ts';
import { startPrepaidCaller } from '../support/caller.ts';
import { pinsOf } from '../support/client.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { until } from '../support/until.ts';

const ORDER = { text: 'Hello world' };

/** An agent whose connection loses requests or answers when told to. */
async function startAgent(t: Test) {
  const caller = await startPrepaidCaller(t, 10_000n);
  const { gateway, wallet, budgetPath } = caller;
  const line = { loses: 'nothing' as 'nothing' | 'requests' | 'answers' | 'budget' };
  const send: typeof fetch = async (input, init) => {
    const isSpeech = (input instanceof Request ? input.url : String(input)).endsWith('/x402/tts');
    if (isSpeech && line.loses === 'requests') throw new TypeError('the line is cut');
    const response = await fetch(input, init);
    if (isSpeech && line.loses === 'budget') await writeFile(budgetPath, 'no budget\n');
    if (!isSpeech || line.loses === 'nothing' || line.loses === 'budget') return response;
    await response.arrayBuffer();
    throw new TypeError('the line is cut');
  };
  const budget = await openBudget(t, budgetPath, { totalMicroUsd: 1000n });
  const trust = pinsOf(gateway);
  const client = new Speechgate({
    ...{ baseUrl: gateway.url, pay: prepaid(wallet), trust, budget, fetch: send, patienceMs: 300 },
  });
  const path = await realpath(await mkdtemp(join(tmpdir(), 'speechgate-mcp-')));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  const kept = keptSpeech(dirname(budgetPath));
  const server = createMcpServer({ client, budget, kept, flow: 'prepaid', folder: await SpeechFolder.open(path) });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(ours);
  const agent = new Client({ name: 'agent', version: '1' });
  await agent.connect(theirs);
  t.teardown(() => agent.close());
  const speak = async (args: Record<string, unknown>) => {
    const { content, structuredContent } = (await agent.callTool({ name: 'speak', arguments: args })) as CallToolResult;
    const text = content[0]?.type === 'text' ? content[0].text : '';
    // biome-ignore lint/suspicious/noExplicitAny: what came back is what is tested.
    return { text, data: structuredContent as any };
  };
  return { ...caller, budget, line, speak };
}

/** The identifier that the agent is told to resume. */
const toResume = (text: string): string => /\{"resume": "([^"]+)"\}/.exec(text)?.[1] ?? assert.fail(text);

test('a request that never arrived is bought by resuming it, once', async (t) => {
  const { budget, line, speak, balance } = await startAgent(t);
  line.loses = 'requests';
  const identifier = toResume((await speak(ORDER)).text);
  assert.equal((await budget.read()).reservedMicroUsd, 198n);
  assert.equal(toResume((await speak({ resume: identifier })).text), identifier, 'still unknown');
  line.loses = 'nothing';
  const { data } = await speak({ resume: identifier, file: 'late' });
  assert.deepEqual(await readFile(data.path), Buffer.from(silentMp3(1000)));
  assert.deepEqual([data.priceUsd, data.budgetLeftUsd], ['0.000198', '0.000802']);
  assert.match((await speak({ resume: identifier })).text, /is open: it was settled/);
  assert.equal(await balance(), 10_000n - 198n);
});

test('a purchase whose answer was lost is not paid again, and counts as spent', async (t) => {
  const { budget, line, speak, balance } = await startAgent(t);
  line.loses = 'answers';
  const identifier = toResume((await speak(ORDER)).text);
  line.loses = 'nothing';
  // Until the gateway knows that its answer has left, the end is unknown.
  await until(async () => /counts as spent/.test((await speak({ resume: identifier })).text));
  const { spentMicroUsd, reservedMicroUsd } = await budget.read();
  assert.deepEqual([spentMicroUsd, reservedMicroUsd], [198n, 0n]);
  assert.equal(await balance(), 10_000n - 198n);
});

test('speech that is paid for is written also where the budget cannot be read any more', async (t) => {
  const { line, speak, balance } = await startAgent(t);
  line.loses = 'budget';
  const { text, data } = await speak(ORDER);
  assert.deepEqual(await readFile(data?.path ?? assert.fail(text)), Buffer.from(silentMp3(1000)));
  assert.deepEqual([data.priceUsd, data.budgetLeftUsd], ['0.000198', null]);
  assert.equal(await balance(), 10_000n - 198n);
});
