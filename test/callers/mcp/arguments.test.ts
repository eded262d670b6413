/** The arguments of each tool, as hosts and their models send them. */
import assert from 'node:assert/strict';
import { chown, lchown, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Ajv } from 'ajv';
import { type Test, t, test } from 'tap';
import { prepaid, Speechgate } from '../../../src/callers/client/index.ts';
import { secondsOf } from '../../../src/callers/mcp/speak-tool.ts';
import { SpeechFolder } from '../../../src/callers/mcp/speech-folder.ts';
import { ForeignFileError } from '../../../src/lib/private-files.ts';
import { startMcpAgent } from '../../support/agent.ts';
import { prepaidCallerOf } from '../../support/caller.ts';
import { callerCommand } from '../../support/caller-command.ts';
import { listening, pinsOf } from '../../support/client.ts';
import { startPrepaidGateway } from '../../support/prepaid.ts';
import { description, silentMp3, silentWav } from '../../support/silent-audio.ts';
import { SAID, talkativeService } from '../../support/talkative-service.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { openBudget } from '../budget/support.ts';

const TEXT = 'Hello world';
const gateway = await startPrepaidGateway(t, await listening());

async function startAgent(t: Test, keyId?: string) {
  gateway.upstream.requests.length = 0;
  const caller = await prepaidCallerOf(t, gateway, 1_000_000n);
  const { wallet, budgetPath } = caller;
  const budget = await openBudget(t, budgetPath, {});
  const trust = pinsOf(gateway).map((pinned) => ({ ...pinned, keyId: keyId ?? pinned.keyId }));
  const client = new Speechgate({ baseUrl: gateway.url, pay: prepaid(wallet), trust, budget });
  const agent = await startMcpAgent(t, dirname(budgetPath), { client, budget, flow: 'prepaid' });
  return { ...caller, ...agent, upstream: gateway.upstream };
}

test('speak says that a service with an unknown key charged nothing', async (t) => {
  const { call, upstream } = await startAgent(t, 'another-key');
  const { isError, text } = await call('speak', { text: TEXT });
  t.ok(isError);
  t.match(
    text,
    /^The client does not trust the response of the service\. The metadata is signed with the key .* Nothing was signed\.$/,
  );
  t.equal(upstream.requests.length, 0);
});

test('null, empty and blank arguments count as absent', async (t) => {
  const { call, upstream } = await startAgent(t);
  const optional = {
    speak: ['voice', 'model', 'speed', 'clean', 'emoji', 'file', 'overwrite', 'maxUsd', 'resume'],
    quote: ['voice', 'model', 'speed', 'clean', 'emoji'],
  };
  for (const [tool, names] of Object.entries(optional)) {
    for (const absent of [null, '', ' ']) {
      const args = { text: TEXT, ...Object.fromEntries(names.map((name) => [name, absent])) };
      const { isError, text } = await call(tool, args);
      t.equal(isError, false, `${tool} ${JSON.stringify(absent)}: ${text}`);
    }
  }
  for (const absent of [undefined, {}, { model: null }, { model: '' }])
    t.equal((await call('list_voices', absent)).isError, false, JSON.stringify(absent));
  for (const absent of [undefined, {}]) t.equal((await call('balance', absent)).isError, false);
  const { input, voice, speed } = upstream.requests.at(-1)?.body ?? {};
  t.strictSame([input, voice, speed ?? 1], [TEXT, 'alloy', 1]);
});

test('numbers, booleans and amounts are read from text, amounts also from numbers', async (t) => {
  const { call, upstream, folder } = await startAgent(t);
  for (const [speed, spoken] of [
    ['1.25', 1.25],
    ['2', 2],
    [' 0.5 ', 0.5],
    [1.5, 1.5],
  ] as const) {
    const { isError, text } = await call('speak', { text: TEXT, speed });
    t.equal(isError, false, text);
    t.equal(upstream.requests.at(-1)?.body?.speed, spoken);
    t.equal((await call('quote', { text: TEXT, speed })).isError, false);
  }
  for (const maxUsd of ['0.01', '$0.01', ' $0.01 ', 0.01, 1, '1']) {
    const { isError, text } = await call('speak', { text: TEXT, maxUsd });
    t.equal(isError, false, `${maxUsd}: ${text}`);
  }
  for (const maxUsd of ['$0.0001', 0.0001, 0, '0'])
    t.match((await call('speak', { text: TEXT, maxUsd })).text, /over the budget/, String(maxUsd));
  await writeFile(join(folder, 'mine.mp3'), 'mine');
  for (const overwrite of ['false', 'False', false])
    t.match((await call('speak', { text: TEXT, file: 'mine.mp3', overwrite })).text, /already exists/);
  for (const overwrite of ['true', 'TRUE', true])
    t.equal((await call('speak', { text: TEXT, file: 'mine.mp3', overwrite })).isError, false);
  t.strictSame(await readFile(join(folder, 'mine.mp3')), Buffer.from(silentMp3(1000)));
});

test('an invalid value names its argument and buys nothing', async (t) => {
  const { call, upstream, folder, balance } = await startAgent(t);
  const wrong: [args: Record<string, unknown>, says: RegExp][] = [
    [{ text: 5 }, /^.*text must/],
    [{ text: TEXT, voice: 7 }, /voice must/],
    [{ text: TEXT, speed: 'fast' }, /speed must/],
    [{ text: TEXT, speed: '1,5' }, /speed must/],
    [{ text: TEXT, speed: true }, /speed must/],
    [{ text: TEXT, speed: 9 }, /speed must .*0\.5 .* 2/],
    [{ text: TEXT, overwrite: 'yes, please' }, /overwrite must/],
    [{ text: TEXT, maxUsd: 'cheap' }, /maxUsd must/],
    [{ text: TEXT, maxUsd: '-1' }, /maxUsd must/],
    [{ text: TEXT, maxUsd: 0.0000001 }, /maxUsd must/],
    [{ text: TEXT, maxUsd: true }, /maxUsd must/],
    [{ text: TEXT, file: 5 }, /file must/],
    [{ resume: 5 }, /resume must/],
    [{}, /exactly one of the arguments text and resume/],
    [{ text: null, resume: '' }, /exactly one of the arguments text and resume/],
  ];
  for (const [args, pattern] of wrong) {
    const { text, isError } = await call('speak', args);
    t.ok(isError, JSON.stringify(args));
    t.match(text, pattern, JSON.stringify(args));
    t.match(text, /Nothing was bought/, JSON.stringify(args));
  }
  for (const args of [{}, { text: '' }, { text: null }, { text: 5 }])
    t.match((await call('quote', args)).text, /text must.*Nothing was bought/, JSON.stringify(args));
  t.match((await call('list_voices', { model: 5 })).text, /model must.*Nothing was bought/);
  t.strictSame([upstream.requests.length, await balance()], [0, 1_000_000n]);
  t.strictSame(await readdir(folder), []);
});

test('an unknown argument is refused with the list of known ones', async (t) => {
  const { call, upstream } = await startAgent(t);
  const known = 'text, voice, model, speed, clean, emoji';
  for (const [tool, args, unknown, names] of [
    ['speak', { text: TEXT, voice_id: 'x', format: 'wav' }, 'voice_id, format', `${known}, file, overwrite`],
    ['speak', { text: TEXT, Text: null }, 'Text', known],
    ['quote', { text: TEXT, file: 'x' }, 'file', `${known}\\.`],
    ['list_voices', { voice: 'x' }, 'voice', 'model, page\\.'],
    ['balance', { account: 'x' }, 'account', 'none\\.'],
  ] as const) {
    const { text } = await call(tool, args);
    t.match(text, new RegExp(`${tool} has no argument ${unknown}\\. Use only: ${names}.*Nothing was bought`));
  }
  t.equal(upstream.requests.length, 0);
});

test('a file name that does not end in .mp3 is refused', async (t) => {
  const { call, upstream, folder } = await startAgent(t);
  await writeFile(join(folder, 'hi.mp3'), 'mine');
  await writeFile(join(folder, 'hi.wav'), 'mine too');
  for (const file of ['hi.wav', 'hi.WAV', 'hi.mp3.wav', 'notes.txt', 'v1.5']) {
    const { text } = await call('speak', { text: TEXT, file, overwrite: true });
    t.match(text, /file must end in \.mp3.*Nothing was bought/, file);
  }
  t.equal(await readFile(join(folder, 'hi.mp3'), 'utf8'), 'mine');
  t.strictSame([await readFile(join(folder, 'hi.wav'), 'utf8'), upstream.requests.length], ['mine too', 0]);
  for (const [file, written] of [
    ['one', 'one.mp3'],
    ['two.MP3', 'two.mp3'],
    ['Version 1.5.mp3', 'Version 1.5.mp3'],
  ] as const) {
    t.equal((await call('speak', { text: TEXT, file })).data?.path, join(folder, written));
  }
});

test('overwrite replaces only the named file, not one of another type', async (t) => {
  const path = await temporaryFolder(t);
  await writeFile(join(path, 'hi.wav'), 'mine');
  const file = await (await SpeechFolder.open(path)).plan('hi.mp3', true);
  t.equal(await file.write(silentWav(10), 'audio/wav'), join(path, 'hi-1.wav'));
  await file.close();
  t.equal(await readFile(join(path, 'hi.wav'), 'utf8'), 'mine');
});

test('the tool schemas are plain and match what the tools accept', async (t) => {
  const { client } = await startAgent(t);
  const ajv = new Ajv({ strict: true });
  const { tools } = await client.listTools();
  const schemaOf = (name: string) => tools.find((tool) => tool.name === name)?.inputSchema ?? assert.fail(name);
  for (const { name, inputSchema, outputSchema } of tools) {
    ajv.compile(inputSchema);
    ajv.compile(outputSchema ?? assert.fail(name));
    t.strictSame([inputSchema.type, inputSchema.additionalProperties], ['object', false], name);
    for (const [argument, schema] of Object.entries(inputSchema.properties ?? {})) {
      const { type, description } = schema as { type?: unknown; description?: unknown };
      t.ok(['string', 'number', 'boolean'].includes(type as string), `${name} ${argument}: ${type}`);
      t.equal(typeof description, 'string', `${name} ${argument}`);
    }
  }
  t.strictSame(schemaOf('quote').required, ['text']);
  t.strictSame(schemaOf('speak').required ?? [], []);
  const speak = ajv.compile(schemaOf('speak'));
  t.ok(speak({ text: TEXT, voice: 'provider-a_alloy', speed: 1.25, file: 'a.mp3', overwrite: true, maxUsd: '0.01' }));
  t.ok(!speak({ text: TEXT, voice_id: 'x' }));
});

// What a service says reaches a model as the service's: short, printable, and last.

async function startTalkativeAgent(t: Test) {
  const service = talkativeService();
  const path = await temporaryFolder(t);
  const budget = await openBudget(t, join(path, 'budget'));
  const { call } = await startMcpAgent(t, path, { client: service.client, budget, flow: 'card' });
  return { call, ...service };
}

test('an error ends with at most 300 printable characters from the service', async (t) => {
  const { call, refusal } = await startTalkativeAgent(t);
  for (const status of [400, 402, 413, 429, 500, 503]) {
    refusal.status = status;
    // What 5xx mean for a purchase is not known.
    for (const name of status < 500 ? ['speak', 'quote'] : ['quote']) {
      const { text, isError } = await call(name, { text: 'Hello', model: 'm0' });
      t.ok(isError);
      t.match(text, SAID, `${status} ${name}: ${text}`);
      t.ok(text.length < 1_000, `${status} ${name}: ${text.length} characters`);
    }
  }
});

test('list_voices returns pages of short lines without invalid ids, for all models or one', async (t) => {
  const { call } = await startTalkativeAgent(t);
  const ids: string[] = [];
  for (let page = 1, pages = 1; page <= pages; page += 1) {
    const { data, text } = await call('list_voices', { page });
    pages = data.pages;
    ids.push(...data.models.map(({ id }: { id: string }) => id));
    t.ok(text.length < 50_000, `${text.length} characters`);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
    t.notMatch(JSON.stringify(data), /[\u001b\u202e\u2028]|\\u001b|W{301}/);
  }
  t.strictSame([ids.length, new Set(ids).size, ids[0]], [120, 120, 'm0']);
  const { pages, models } = (await call('list_voices', { model: 'm0' })).data;
  const last = (await call('list_voices', { model: 'm0', page: pages })).data;
  t.strictSame([pages > 1, models[0].voiceCount, last.models[0].voices.at(-1).id], [true, 70, 'v69']);
  t.match(
    (await call('list_voices', { model: 'none' })).text,
    /Use one of m0, m1, .* and 100 more\. Nothing was bought\.$/,
  );
});

// Where the MCP server writes: a folder of its own user, by whatever way it is named.

const NOBODY = 65_534;
const skip = process.geteuid?.() !== 0 && 'only root may give files away';

test('a folder or link of another user is not written to', { skip }, async (t) => {
  const root = await temporaryFolder(t);
  const [own, foreign] = [join(root, 'own'), join(root, 'foreign')];
  const [planted, mine] = [join(root, 'planted'), join(root, 'mine')];
  await mkdir(own);
  await mkdir(foreign);
  await chown(foreign, NOBODY, NOBODY);
  await symlink(own, planted);
  await lchown(planted, NOBODY, NOBODY);
  await symlink(own, mine);
  for (const path of [foreign, planted]) {
    await assert.rejects(SpeechFolder.open(path), ForeignFileError, path);
    const { code, err } = await callerCommand({}, 'mcp', '--folder', path);
    t.strictSame([code, err.trim().split('\n').length], [2, 1], err);
    t.match(err, /belongs to another user, or is reached by /);
  }
  t.equal((await SpeechFolder.open(mine)).path, own);
  await t.rejects(SpeechFolder.open(join(root, 'none')));
  t.strictSame((await readdir(root)).sort(), ['foreign', 'mine', 'own', 'planted'], 'none is made');
});

const near = (seconds: number | null, expected: number) =>
  assert.ok(seconds !== null && Math.abs(seconds - expected) < 0.06, `${seconds} instead of ${expected}`);

test('the length of audio is that of its frames or data, whatever its header says', async () => {
  near(secondsOf(silentMp3(2500), 'audio/mpeg'), 2.5);
  const tag = Buffer.concat([Buffer.from('ID3\x04\0\0\0\0\0\x05', 'latin1'), Buffer.alloc(5)]);
  near(secondsOf(Buffer.concat([tag, description({ frames: 42 }), silentMp3(1000)]), 'audio/mpeg'), 1);
  // Bytes of the header's second and third: MPEG 1 at 44.1 kHz, MPEG 2.5 at 11.025 kHz.
  for (const [version, bitrate, bytes, seconds] of [
    [0xfb, 0x90, 417, 1152 / 44_100],
    [0xe3, 0x80, 417, 576 / 11_025],
  ] as const) {
    const frame = Buffer.alloc(bytes);
    frame.set([0xff, version, bitrate, 0]);
    near(secondsOf(Buffer.concat(Array.from({ length: 40 }, () => frame)), 'audio/mpeg'), 40 * seconds);
  }
  const wav = silentWav(1500);
  for (const size of [wav.length - 44, 0, 0xffff_ffff]) {
    const streamed = Buffer.from(wav);
    streamed.writeUInt32LE(size, wav.indexOf('data') + 4);
    near(secondsOf(streamed, 'audio/wav'), 1.5);
  }
});

test('bytes that are not audio have no length', async (t) => {
  for (const type of ['audio/mpeg', 'audio/wav'] as const)
    t.strictSame([secondsOf(new Uint8Array(0), type), secondsOf(Buffer.alloc(2000, 0x5a), type)], [null, null]);
});
