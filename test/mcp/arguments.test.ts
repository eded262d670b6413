/** The arguments of each tool, as hosts and their models send them. */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { Ajv } from 'ajv';
import { type Test, test } from 'tap';
import { keptSpeech } from '../../src/cli/caller/kept-purchases.ts';
import { prepaid, Speechgate } from '../../src/client/index.ts';
import { createMcpServer } from '../../src/mcp/server.ts';
import { SpeechFolder } from '../../src/mcp/speech-folder.ts';
import { openBudget } from '../budget/support.ts';
import { startPrepaidCaller } from '../support/caller.ts';
import { pinsOf } from '../support/client.ts';
import { silentMp3, silentWav } from '../support/silent-audio.ts';

const text = 'Hello world';

async function startAgent(t: Test) {
  const caller = await startPrepaidCaller(t, 1_000_000n);
  const { gateway, wallet, budgetPath } = caller;
  const budget = await openBudget(t, budgetPath, {});
  const client = new Speechgate({ baseUrl: gateway.url, pay: prepaid(wallet), trust: pinsOf(gateway), budget });
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'speechgate-mcp-')));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const kept = keptSpeech(dirname(budgetPath));
  const server = createMcpServer({ client, budget, kept, flow: 'prepaid', folder: await SpeechFolder.open(folder) });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(ours);
  const agent = new Client({ name: 'agent', version: '1' });
  await agent.connect(theirs);
  t.teardown(() => agent.close());
  const call = async (name: string, args?: Record<string, unknown>) => {
    const result = (await agent.callTool({ name, ...(args && { arguments: args }) })) as CallToolResult;
    const { content, structuredContent, isError = false } = result;
    const said = content[0]?.type === 'text' ? content[0].text : '';
    // biome-ignore lint/suspicious/noExplicitAny: what came back is what is tested.
    return { said, isError, data: structuredContent as any };
  };
  return { ...caller, agent, budget, folder, call, upstream: gateway.upstream };
}

test('what hosts send for arguments that are absent is as if it was left out', async (t) => {
  const { call, upstream } = await startAgent(t);
  const optional = {
    speak: ['voice', 'model', 'speed', 'file', 'overwrite', 'maxUsd', 'resume'],
    quote: ['voice', 'model', 'speed'],
  };
  for (const [tool, names] of Object.entries(optional)) {
    for (const absent of [null, '', ' ']) {
      const args = { text, ...Object.fromEntries(names.map((name) => [name, absent])) };
      const { isError, said } = await call(tool, args);
      assert.equal(isError, false, `${tool} ${JSON.stringify(absent)}: ${said}`);
    }
  }
  for (const absent of [undefined, {}, { model: null }, { model: '' }]) {
    assert.equal((await call('list_voices', absent)).isError, false, JSON.stringify(absent));
  }
  for (const absent of [undefined, {}]) assert.equal((await call('balance', absent)).isError, false);
  const { input, voice, speed } = upstream.requests.at(-1)?.body ?? {};
  assert.deepEqual([input, voice, speed ?? 1], [text, 'alloy', 1]);
});

test('numbers, booleans and money are read from text, and money from a number', async (t) => {
  const { call, upstream, folder } = await startAgent(t);
  for (const [speed, spoken] of [
    ['1.25', 1.25],
    ['2', 2],
    [' 0.5 ', 0.5],
    [1.5, 1.5],
  ] as const) {
    const { isError, said } = await call('speak', { text, speed });
    assert.equal(isError, false, said);
    assert.equal(upstream.requests.at(-1)?.body?.speed, spoken);
    assert.equal((await call('quote', { text, speed })).isError, false);
  }
  for (const maxUsd of ['0.01', '$0.01', ' $0.01 ', 0.01, 1, '1']) {
    const { isError, said } = await call('speak', { text, maxUsd });
    assert.equal(isError, false, `${maxUsd}: ${said}`);
  }
  for (const maxUsd of ['$0.0001', 0.0001, 0, '0']) {
    assert.match((await call('speak', { text, maxUsd })).said, /Over the budget/, String(maxUsd));
  }
  await writeFile(join(folder, 'mine.mp3'), 'mine');
  for (const overwrite of ['false', 'False', false]) {
    assert.match((await call('speak', { text, file: 'mine.mp3', overwrite })).said, /there already/);
  }
  for (const overwrite of ['true', 'TRUE', true]) {
    assert.equal((await call('speak', { text, file: 'mine.mp3', overwrite })).isError, false);
  }
  assert.deepEqual(await readFile(join(folder, 'mine.mp3')), Buffer.from(silentMp3(1000)));
});

test('wrong values are told with the name of the argument, and buy nothing', async (t) => {
  const { call, upstream, folder, balance } = await startAgent(t);
  const wrong: [args: Record<string, unknown>, said: RegExp][] = [
    [{ text: 5 }, /^.*text takes/],
    [{ text: ['a'] }, /text takes/],
    [{ text, voice: 7 }, /voice takes/],
    [{ text, model: {} }, /model takes/],
    [{ text, speed: 'fast' }, /speed takes/],
    [{ text, speed: '1,5' }, /speed takes/],
    [{ text, speed: '0x1' }, /speed takes/],
    [{ text, speed: true }, /speed takes/],
    [{ text, speed: 9 }, /speed takes .*0\.5 .* 2/],
    [{ text, speed: '9' }, /speed takes/],
    [{ text, overwrite: 'yes, please' }, /overwrite takes/],
    [{ text, overwrite: 2 }, /overwrite takes/],
    [{ text, maxUsd: 'cheap' }, /maxUsd takes/],
    [{ text, maxUsd: '-1' }, /maxUsd takes/],
    [{ text, maxUsd: -1 }, /maxUsd takes/],
    [{ text, maxUsd: 0.0000001 }, /maxUsd takes/],
    [{ text, maxUsd: '1 EUR' }, /maxUsd takes/],
    [{ text, maxUsd: true }, /maxUsd takes/],
    [{ text, file: 5 }, /file takes/],
    [{ resume: 5 }, /resume takes/],
    [{}, /Say either text, or resume/],
    [{ text: null, resume: '' }, /Say either text, or resume/],
  ];
  for (const [args, pattern] of wrong) {
    const { said, isError } = await call('speak', args);
    assert.ok(isError, JSON.stringify(args));
    assert.match(said, pattern, JSON.stringify(args));
    assert.match(said, /Nothing was bought/, JSON.stringify(args));
  }
  for (const args of [{}, { text: '' }, { text: null }, { text: 5 }]) {
    assert.match((await call('quote', args)).said, /text takes.*Nothing was bought/, JSON.stringify(args));
  }
  assert.match((await call('list_voices', { model: 5 })).said, /model takes.*Nothing was bought/);
  assert.equal(upstream.requests.length, 0);
  assert.equal(await balance(), 1_000_000n);
  assert.deepEqual(await readdir(folder), []);
});

test('an unknown argument is named with those that a tool has, and buys nothing', async (t) => {
  const { call, upstream } = await startAgent(t);
  for (const unknown of ['voice_id', 'format', 'response_format', 'Text', 'input', 'output', 'max_usd']) {
    const { said } = await call('speak', { text, [unknown]: 'x' });
    assert.match(
      said,
      new RegExp(`speak has no argument ${unknown}\\. It takes text, voice, model, speed, file, overwrite`),
    );
    assert.match(said, /Nothing was bought/);
  }
  assert.match((await call('speak', { text, voice_id: 'x', format: 'wav' })).said, /no argument voice_id, format\./);
  assert.match((await call('speak', { text, voice_id: null })).said, /no argument voice_id\./);
  assert.match(
    (await call('quote', { text, file: 'x' })).said,
    /quote has no argument file\. It takes text, voice, model, speed\./,
  );
  assert.match(
    (await call('list_voices', { voice: 'x' })).said,
    /list_voices has no argument voice\. It takes model, page\./,
  );
  assert.match((await call('balance', { account: 'x' })).said, /balance has no argument account\. It takes none\./);
  assert.equal(upstream.requests.length, 0);
});

test('a file with another ending than .mp3 is refused, and replaces nothing', async (t) => {
  const { call, upstream, folder } = await startAgent(t);
  await writeFile(join(folder, 'hi.mp3'), 'mine');
  await writeFile(join(folder, 'hi.wav'), 'mine too');
  for (const file of ['hi.wav', 'hi.WAV', 'hi.ogg', 'hi.flac', 'hi.mp4', 'hi.mp3.wav', 'notes.txt', 'v1.5']) {
    const { said } = await call('speak', { text, file, overwrite: true });
    assert.match(said, /file takes a name that ends in \.mp3.*Nothing was bought/, file);
  }
  assert.equal(await readFile(join(folder, 'hi.mp3'), 'utf8'), 'mine');
  assert.equal(await readFile(join(folder, 'hi.wav'), 'utf8'), 'mine too');
  assert.equal(upstream.requests.length, 0);
  for (const [file, written] of [
    ['one', 'one.mp3'],
    ['two.MP3', 'two.mp3'],
    ['Version 1.5.mp3', 'Version 1.5.mp3'],
  ] as const) {
    assert.equal((await call('speak', { text, file })).data?.path, join(folder, written));
  }
});

test('overwrite replaces the file that was named, and none of another type', async (t) => {
  const path = await realpath(await mkdtemp(join(tmpdir(), 'speechgate-mcp-')));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  await writeFile(join(path, 'hi.wav'), 'mine');
  const file = await (await SpeechFolder.open(path)).plan('hi.mp3', true);
  assert.equal(await file.write(silentWav(10), 'audio/wav'), join(path, 'hi-1.wav'));
  await file.close();
  assert.equal(await readFile(join(path, 'hi.wav'), 'utf8'), 'mine');
});

test('an error about a voice or model lists those that there are', async (t) => {
  const { call, upstream } = await startAgent(t);
  for (const tool of ['speak', 'quote']) {
    assert.match((await call(tool, { text, voice: 'provider-a_nobody' })).said, /provider-a_alloy, .*Nothing was/);
    assert.match((await call(tool, { text, voice: 'nobody' })).said, /provider-a_alloy, .*Nothing was/);
  }
  assert.match((await call('list_voices', { model: 'none' })).said, /provider-a\/tts-1, /);
  assert.equal(upstream.requests.length, 0);
});

test('the schemas that hosts see are plain, and agree with what the tools take', async (t) => {
  const { agent } = await startAgent(t);
  const ajv = new Ajv({ strict: true });
  const { tools } = await agent.listTools();
  const schemaOf = (name: string) => tools.find((tool) => tool.name === name)?.inputSchema ?? assert.fail(name);
  for (const { name, inputSchema } of tools) {
    ajv.compile(inputSchema);
    assert.deepEqual([inputSchema.type, inputSchema.additionalProperties], ['object', false], name);
    for (const [argument, schema] of Object.entries(inputSchema.properties ?? {})) {
      const { type, description } = schema as { type?: unknown; description?: unknown };
      assert.ok(['string', 'number', 'boolean'].includes(type as string), `${name} ${argument}: ${type}`);
      assert.equal(typeof description, 'string', `${name} ${argument}`);
    }
  }
  assert.deepEqual(schemaOf('quote').required, ['text']);
  assert.deepEqual(schemaOf('speak').required ?? [], []);
  const speak = ajv.compile(schemaOf('speak'));
  assert.ok(speak({ text, voice: 'provider-a_alloy', speed: 1.25, file: 'a.mp3', overwrite: true, maxUsd: '0.01' }));
  assert.ok(!speak({ text, voice_id: 'x' }));
});
