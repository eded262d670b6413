/** `speechgate mcp`, driven by the official client: as a process, and in this one. */
import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { PassThrough, type Stream } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Client as Client2 } from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type Test, t, test } from 'tap';
import { toolsOf } from '../../support/agent.ts';
import { prepaidCallerOf } from '../../support/caller.ts';
import { callerCommand, startCallerCommand } from '../../support/caller-command.ts';
import { programCommand } from '../../support/child.ts';
import { listening } from '../../support/client.ts';
import { blocksOf } from '../../support/documentation.ts';
import { startPrepaidGateway } from '../../support/prepaid.ts';
import { projectFile } from '../../support/project.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { ControlledStream, mp3, openAiError } from '../../support/stub-upstream.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

/** Of `Hello world` by the default model. */
const PRICE = 198n;

type Start = (env: Readonly<Record<string, string>>, args: string[]) => Connection;

interface Connection {
  readonly transport: Transport;
  readonly stderr: Stream | null;
}

const inProcess: Start = (env, args) => {
  const stdin = new PassThrough();
  const { stdout, stderr } = startCallerCommand(env, args, stdin);
  // Each side of the protocol reads one stream and writes the other.
  const transport = new StdioServerTransport(stdout, stdin);
  const close = transport.close.bind(transport);
  transport.close = async () => {
    stdin.end();
    await close();
  };
  return { transport, stderr };
};

const asProcess: Start = (env, args) => {
  const { PATH = '', HOME = '' } = process.env;
  const [command = '', ...programArgs] = programCommand('src/speechgate.ts', ...args);
  const transport = new StdioClientTransport({
    command,
    args: programArgs,
    env: { PATH, HOME, ...env },
    stderr: 'pipe',
  });
  return { transport, stderr: transport.stderr };
};

async function startAgent(t: Test, env: Readonly<Record<string, string>>, start: Start = inProcess, args?: string[]) {
  const folder = await temporaryFolder(t);
  const { transport, stderr } = start(env, args ?? ['mcp', '--folder', folder]);
  // What the server says on standard error.
  let complaints = '';
  stderr?.on('data', (chunk) => (complaints += chunk));
  const client = new Client({ name: 'agent', version: '1' });
  // Anything on standard output that is no message of the protocol.
  client.onerror = (error) => (complaints += error.message);
  t.teardown(() => client.close());
  await client.connect(transport);
  return { client, folder, complaints: () => complaints, call: toolsOf(client) };
}

const gateway = await startPrepaidGateway(t, await listening(), { worker: true });

/** A caller whose requests are the only ones that the upstream has seen. */
function caller(t: Test, microUsd = 1_000_000n) {
  gateway.upstream.mode = mp3();
  gateway.upstream.requests.length = 0;
  return prepaidCallerOf(t, gateway, microUsd);
}

test('an agent lists voices, gets a quote, buys speech and reads its balance', async (t) => {
  const { gateway, env, balance } = await caller(t);
  gateway.upstream.mode = mp3(2500);
  const agent = await startAgent(t, { ...env, SPEECHGATE_MAX_TOTAL: '0.001' }, asProcess);
  const { tools } = await agent.client.listTools();
  t.strictSame(tools.map(({ name }) => name).sort(), ['balance', 'list_voices', 'quote', 'speak']);

  const voices = await agent.call('list_voices');
  t.equal(voices.data.defaultModel, 'provider-a/tts-1');
  t.ok(voices.data.models.find(({ id }: { id: string }) => id === 'provider-a/tts-1').voices.length > 1);
  t.equal((await agent.call('list_voices', { model: 'provider-a/tts-1' })).data.models.length, 1);

  const quote = await agent.call('quote', { text: 'Hello world' });
  t.strictSame([quote.data.priceUsd, quote.data.characters, quote.data.budgetLeftUsd], ['0.000198', 11, '0.001000']);

  const spoken = await agent.call('speak', { text: 'Hello world', voice: 'provider-a_alloy', file: 'hello.mp3' });
  const { receipt, ...told } = spoken.data;
  t.strictSame(told, {
    path: join(agent.folder, 'hello.mp3'),
    seconds: told.seconds,
    bytes: silentMp3(2500).length,
    contentType: 'audio/mpeg',
    priceUsd: '0.000198',
    budgetLeftUsd: '0.000802',
  });
  t.ok(Math.abs(told.seconds - 2.5) < 0.1, String(told.seconds));
  t.strictSame([receipt.flow, receipt.balanceUsd, receipt.isReplay], ['prepaid', '0.999802', false]);
  t.match(receipt.traceId, /^[0-9a-f-]{36}$/);
  t.strictSame(await readFile(told.path), Buffer.from(silentMp3(2500)));
  t.equal(await balance(), 1_000_000n - PRICE);

  const left = await agent.call('balance');
  t.strictSame(left.data, {
    balanceUsd: '0.999802',
    budgetLeftUsd: '0.000802',
    spentTodayUsd: '0.000198',
    spentUsd: '0.000198',
    reservedUsd: '0.000000',
    openPurchases: [],
  });
  await agent.client.close();
  t.equal(agent.complaints(), 'Caps: 0.001000 USD in total.\n', 'nothing else but the protocol was printed');
});

test('docs/clients.md: a host starts the server from another folder, and it buys speech', async (t) => {
  const { gateway, env, balance } = await caller(t);
  gateway.upstream.mode = mp3(500);
  const blocks = await blocksOf('docs/clients.md', 'Agents');
  const documented = blocks.find(({ language }) => language === 'json')?.code ?? assert.fail('no settings of a host');
  const speech = await temporaryFolder(t);
  const project = fileURLToPath(projectFile(''));
  const settings = documented.replaceAll('/path/to/speechgate/', project).replaceAll('/path/to/speech', speech);
  const { command, args, env: caps } = JSON.parse(settings).mcpServers.speechgate;
  const elsewhere = await temporaryFolder(t);
  const agent = await startAgent(t, { ...env, ...caps }, (env) => {
    const { PATH = '', HOME = '' } = process.env;
    const server = { command, args, env: { PATH, HOME, ...env }, cwd: elsewhere, stderr: 'pipe' } as const;
    const transport = new StdioClientTransport(server);
    return { transport, stderr: transport.stderr };
  });
  const spoken = await agent.call('speak', { text: 'Hello world', file: 'hello.mp3' });
  t.strictSame([spoken.data.path, spoken.data.budgetLeftUsd], [join(speech, 'hello.mp3'), '0.499802'], spoken.text);
  t.equal(await balance(), 1_000_000n - PRICE);
  t.strictSame(await readdir(elsewhere), []);
});

test('a refused call tells the agent what to do and charges nothing', async (t) => {
  const { gateway, env, balance } = await caller(t, 300n);
  const agent = await startAgent(t, { ...env, SPEECHGATE_MAX_PER_CALL: '0.01', SPEECHGATE_MAX_PER_DAY: '0.02' });
  const say = async (args: object, pattern: RegExp) => {
    const { isError, text } = await agent.call('speak', args);
    assert.ok(isError);
    assert.match(text, pattern);
  };
  await say(
    { text: 'x'.repeat(1000) },
    /This purchase is over the budget\. .* 0\.018000 USD.* 0\.010000 USD for one call/,
  );
  await say(
    { text: 'Hello world', maxUsd: '0.0001' },
    /0\.000100 USD of the cap of 0\.000100 USD for one call is left/,
  );
  await say({ text: 'x'.repeat(400) }, /Insufficient funds: .*speechgate deposit 1.*Nothing was charged\./);
  await say({ text: 'Hello world', voice: 'nobody' }, /voice.*list_voices.*Nothing was charged/);
  t.equal(gateway.upstream.requests.length, 0);
  gateway.upstream.mode = openAiError(400);
  await say(
    { text: 'Hello world' },
    /The service failed \(TTS_UPSTREAM_ERROR.*\)\. Tell your user: the same call fails again/,
  );
  t.equal(await balance(), 300n);
  t.strictSame(await readdir(agent.folder), [], 'nothing is left in the folder');
});

test('an agent pays by card, and does not learn the account id', async (t) => {
  gateway.upstream.mode = mp3();
  const account = await gateway.fund(50);
  const folder = await temporaryFolder(t);
  const env = { SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: gateway.url, SPEECHGATE_ACCOUNT: account };
  const agent = await startAgent(t, env);
  t.equal((await agent.call('speak', { text: 'Hello world' })).data.receipt.flow, 'card');
  t.equal(await gateway.balance(account), 500_000n - PRICE);
  t.notMatch(JSON.stringify(await agent.call('balance')), new RegExp(account), 'the bearer id stays here');
});

test('speech is written only inside its folder and replaces nothing by default', async (t) => {
  const { gateway, env } = await caller(t);
  const agent = await startAgent(t, env);
  const say = (args: object) => agent.call('speak', { text: 'Hi', ...args });
  const outside = join(agent.folder, '..', 'outside.mp3');
  const long = 'x'.repeat(300);
  for (const file of ['../outside.mp3', outside, 'a/b.mp3', 'a\\b.mp3', '..', '.hidden', 'a\0b', long, 'C:x', 'NUL'])
    t.match((await say({ file })).text, /file must be a file name without folders/, file);
  await symlink(outside, join(agent.folder, 'link.mp3'));
  t.match((await say({ file: 'link.mp3' })).text, /already exists/);
  t.match((await say({ file: 'link.mp3', overwrite: true })).text, /already exists/);
  await mkdir(join(agent.folder, 'folder.mp3'));
  t.match((await say({ file: 'folder.mp3', overwrite: true })).text, /Choose another name/);
  await writeFile(join(agent.folder, 'taken.mp3'), 'mine');
  t.match((await say({ file: 'taken' })).text, /overwrite: true/);
  t.equal(gateway.upstream.requests.length, 0, 'nothing was bought');
  const { data } = await say({ file: 'taken', overwrite: true });
  t.strictSame(await readFile(data.path), Buffer.from(silentMp3(1000)));
  t.equal(new Set(await Promise.all([1, 2].map(async () => (await say({})).data.path))).size, 2);
  const [first, second] = await Promise.all([say({ file: 'same' }), say({ file: 'same' })]);
  t.strictSame([first.data?.path, second.data?.path].sort(), [
    join(agent.folder, 'same-1.mp3'),
    join(agent.folder, 'same.mp3'),
  ]);
});

test('a folder that was replaced by a link is not written to', async (t) => {
  const { gateway, env } = await caller(t);
  const agent = await startAgent(t, env);
  const elsewhere = `${agent.folder}-elsewhere`;
  await mkdir(elsewhere);
  t.teardown(() => rm(elsewhere, { recursive: true }));
  await rm(agent.folder, { recursive: true });
  await symlink(elsewhere, agent.folder);
  t.match((await agent.call('speak', { text: 'Hi' })).text, /was replaced by another folder/);
  t.strictSame([gateway.upstream.requests.length, await readdir(elsewhere)], [0, []]);
});

test('a client of SDK 2 speaks revision 2026-07-28, with progress and cancellation', async (t) => {
  const { gateway, env } = await caller(t);
  const drip = new ControlledStream();
  gateway.upstream.mode = drip.mode;
  t.teardown(() => drip.reset());
  const folder = await temporaryFolder(t);
  const client = new Client2({ name: 'agent', version: '2' }, { versionNegotiation: { mode: 'auto' } });
  t.teardown(() => client.close());
  await client.connect(inProcess(env, ['mcp', '--folder', folder]).transport);
  t.equal(client.getNegotiatedProtocolVersion(), '2026-07-28');
  t.match(client.getInstructions() ?? '', /resume that purchase/);
  t.equal((await client.listTools()).tools.length, 4);
  const heard: number[] = [];
  const cancel = new AbortController();
  const speak = { name: 'speak', arguments: { text: 'Hello world' } };
  const options = { onprogress: ({ progress }: { progress: number }) => heard.push(progress), signal: cancel.signal };
  const call = client.callTool(speak, options);
  await until(() => heard.length >= 2);
  cancel.abort();
  await t.rejects(call);
  t.strictSame(heard.slice(0, 2), [1, 2]);
  await until(async () => (await readdir(folder)).length === 0);
  const { structuredContent } = await client.callTool({ name: 'balance' });
  t.equal((structuredContent as { reservedUsd: string }).reservedUsd, '0.000198');
});

test('a server without settings or folder starts, and each tool says what is missing', async (t) => {
  const settings = await temporaryFolder(t);
  const speech = ['--folder', settings];
  const url = { SPEECHGATE_URL: 'http://127.0.0.1:1' };
  const none = { SPEECHGATE_CONFIG_DIR: settings };
  const env = { ...none, ...url, SPEECHGATE_ACCOUNT: '3b241101-e2bb-4255-8caf-4136c566a962' };
  const cases: readonly [env: Record<string, string>, args: string[], code: number, says: RegExp][] = [
    [none, speech, 2, /^No service is set\. Run speechgate connect URL/],
    [{ ...none, ...url }, speech, 3, /^No credit account is set .*speechgate top-up/],
    [env, ['--folder', '/nowhere/at/all'], 2, /^--folder \/nowhere\/at\/all is not a folder/],
    [
      env,
      ['--folder', '~/none at home'],
      2,
      new RegExp(`^--folder ${join(homedir(), 'none at home')} is not a folder`),
    ],
    [env, [], 2, /^--folder is missing/],
  ];
  for (const [settings, args, code, says] of cases) {
    const agent = await startAgent(t, settings, inProcess, ['mcp', ...args]);
    const { tools } = await agent.client.listTools();
    t.equal(tools.length, 4);
    for (const { name } of tools) {
      const given = { list_voices: {}, quote: { text: 'Hi' }, speak: { text: 'Hi' }, balance: {} }[name];
      const { isError, text } = await agent.call(name, given);
      t.ok(isError, name);
      t.match(text, says);
      t.match(text, /restart this server\. Nothing was bought\.$/);
    }
    await agent.client.close();
    const ended = await callerCommand(settings, 'mcp', ...args);
    t.strictSame([ended.code, ended.out], [code, ''], ended.err);
    t.match(ended.err, says);
  }
});

test('~/ in --folder is the home of the user, and results hold nothing beyond their schema', async (t) => {
  const { env } = await caller(t);
  const { HOME } = process.env;
  process.env.HOME = tmpdir();
  t.teardown(() => (process.env.HOME = HOME));
  const folder = await temporaryFolder(t);
  const agent = await startAgent(t, env, inProcess, ['mcp', '--folder', `~/${basename(folder)}`]);
  t.equal(dirname((await agent.call('speak', { text: 'Hi' })).data.path), folder);
  const { tools } = await agent.client.listTools();
  for (const [name, args] of [
    ['list_voices', {}],
    ['quote', { text: 'Hi' }],
    ['speak', { text: 'Hi' }],
    ['balance', {}],
  ] as const) {
    const schema = tools.find((tool) => tool.name === name)?.outputSchema;
    const { data } = await agent.call(name, args);
    t.strictSame(unlisted(data, schema), [], name);
  }
});

/** The paths of members that a schema does not list. */
// biome-ignore lint/suspicious/noExplicitAny: schemas and documents of any shape.
function unlisted(value: any, schema: any, path = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((item) => unlisted(item, schema?.items, `${path}[]`));
  if (typeof value !== 'object' || value === null) return schema ? [] : [path];
  return Object.entries(value).flatMap(([name, member]) =>
    unlisted(member, schema?.properties?.[name], `${path}.${name}`),
  );
}
