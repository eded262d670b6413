/** What a service says reaches a model as the service's: short, printable, and last. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { type Test, test } from 'tap';
import { keptSpeech } from '../../src/cli/caller/kept-purchases.ts';
import { createMcpServer } from '../../src/mcp/server.ts';
import { SpeechFolder } from '../../src/mcp/speech-folder.ts';
import { openBudget } from '../budget/support.ts';
import { SAID, talkativeService } from '../support/talkative-service.ts';

async function startAgent(t: Test) {
  const service = talkativeService();
  const path = await mkdtemp(join(tmpdir(), 'speechgate-mcp-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  const server = createMcpServer({
    client: service.client,
    budget: await openBudget(t, join(path, 'budget'), {}),
    kept: keptSpeech(path),
    flow: 'card',
    folder: await SpeechFolder.open(path),
  });
  const [here, there] = InMemoryTransport.createLinkedPair();
  await server.connect(here);
  const client = new Client({ name: 'agent', version: '1' });
  await client.connect(there);
  t.teardown(() => client.close());
  const call = async (name: string, args: object = {}) => {
    const result = (await client.callTool({ name, arguments: { ...args } })) as CallToolResult;
    const [first] = result.content;
    // biome-ignore lint/suspicious/noExplicitAny: what came back is what is tested.
    return { text: first?.type === 'text' ? first.text : '', data: result.structuredContent as any, result };
  };
  return { call, ...service };
}

test('an error ends with what the service says, at most 300 printable characters', async (t) => {
  const { call, refusal } = await startAgent(t);
  for (const status of [400, 402, 413, 429, 500, 503]) {
    refusal.status = status;
    // What 5xx mean for a purchase is not known.
    for (const name of status < 500 ? ['speak', 'quote'] : ['quote']) {
      const { text, result } = await call(name, { text: 'Hello', model: 'm0' });
      assert.ok(result.isError);
      assert.match(text, SAID, `${status} ${name}: ${text}`);
      assert.ok(text.length < 1_000, `${status} ${name}: ${text.length} characters`);
    }
  }
});

test('list_voices gives pages of short lines, without ids that are none', async (t) => {
  const { call } = await startAgent(t);
  const ids: string[] = [];
  for (let page = 1, pages = 1; page <= pages; page += 1) {
    const { data, text } = await call('list_voices', { page });
    pages = data.pages;
    ids.push(...data.models.map(({ id }: { id: string }) => id));
    assert.ok(text.length < 50_000, `${text.length} characters`);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
    assert.doesNotMatch(JSON.stringify(data), /[\u001b\u202e\u2028]|\\u001b|W{301}/);
  }
  assert.deepEqual([ids.length, new Set(ids).size, ids[0]], [120, 120, 'm0']);
});

test("list_voices gives pages of one model's voices", async (t) => {
  const { call } = await startAgent(t);
  const voices: string[] = [];
  for (let page = 1, pages = 1; page <= pages; page += 1) {
    const { data } = await call('list_voices', { model: 'm0', page });
    pages = data.pages;
    assert.equal(data.models[0].voiceCount, 70);
    voices.push(...data.models[0].voices.map(({ id }: { id: string }) => id));
  }
  assert.deepEqual([voices.length, voices.at(-1)], [70, 'v69']);
  assert.match((await call('list_voices', { model: 'none' })).text, /There are: m0, m1, .* and 100 more\.$/);
});
