/** `speechgate bridge` with the budget in its file: as a process, and in this one. */
import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import OpenAI, { AuthenticationError, RateLimitError } from 'openai';
import { type Test, t, test } from 'tap';
import { callerCommand, startCallerCommand } from '../../support/caller-command.ts';
import { type Child, startChild } from '../../support/child.ts';
import { startGateway } from '../../support/gateway.ts';
import { testUpstream } from '../../support/stub-upstream.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const ORDER = { model: 'tts-1', voice: 'alloy', input: 'Hello world' } as const;
const gateway = await startGateway(t, { SPEECH_BASE_URL: (await testUpstream(t)).url }, { worker: true });

async function scene(t: Test) {
  const account = await gateway.fund(100);
  const folder = await temporaryFolder(t);
  const env = { SPEECHGATE_CONFIG_DIR: folder, SPEECHGATE_URL: gateway.url, SPEECHGATE_ACCOUNT: account };
  const client = async (bridge: Pick<Child, 'printed' | 'output'>) => {
    const [, url] = await bridge.printed(/(?:OPENAI_BASE_URL=|"url":\s*")([^\s"]+)[\s\S]*(?:Paid by|"leftMicroUsd")/);
    const [, apiKey] = /(?:OPENAI_API_KEY=|"apiKey":\s*")([^\s"]+)/.exec(bridge.output()) ?? [];
    return { openai: new OpenAI({ baseURL: url as string, apiKey: apiKey ?? 'none' }), apiKey };
  };
  return {
    account,
    folder,
    env,
    startProcess: async (...args: string[]) => {
      const child = startChild(t, 'src/speechgate.ts', env, ['bridge', '--port', '0', ...args]);
      return { child, ...(await client(child)) };
    },
    start: async (...args: string[]) => {
      const command = startCallerCommand(env, ['bridge', '--port', '0', ...args]);
      t.teardown(() => command.stop('SIGTERM'));
      return { command, ...(await client(command)) };
    },
  };
}

test('the bridge reports each charge and keeps to a budget that survives restarts', async (t) => {
  const { account, startProcess } = await scene(t);
  const { child, openai } = await startProcess('--max-total', '0.0005');
  const response = await openai.audio.speech.create(ORDER);
  t.equal(response.headers.get('x-speechgate-budget-left-micro-usd'), '302');
  t.ok((await response.arrayBuffer()).byteLength > 0);
  await openai.audio.speech.create({ ...ORDER, voice: 'marin' });
  await child.printed(
    /\$0\.000198 {2}11 characters as mp3 {2}provider-a\/tts-1 provider-a_alloy {2}total \$0\.000198 {2}left \$0\.000302/,
  );
  await child.printed(/for marin {2}total \$0\.000396 {2}left \$0\.000104/);
  t.equal((await openai.audio.speech.create(ORDER)).headers.get('x-speechgate-replay'), 'true');
  await child.printed(/\$0\.000000 .* repeated {2}total \$0\.000396/);
  await t.rejects(openai.audio.speech.create({ ...ORDER, input: 'Hello again' }), {
    message: /Raise the cap with --max-total of speechgate bridge/,
  });
  await child.printed(/refused {2}over_cap: .*total \$0\.000396/);
  t.notMatch(child.output(), /Hello/);
  t.equal(await child.stop(), 0);
  t.match(child.output(), /Spent \$0\.000396/);
  const again = await startProcess('--max-total', '0.0005');
  await assert.rejects(again.openai.audio.speech.create(ORDER), RateLimitError);
  t.strictSame([await again.child.stop('SIGINT'), await gateway.balance(account)], [0, 1_000_000n - 396n]);
});

test('the bridge creates and prints a new token at each start, but for --no-token', async (t) => {
  const { start, env } = await scene(t);
  const first = await start();
  t.match(first.command.output(), /^export OPENAI_BASE_URL=http:\S+\nexport OPENAI_API_KEY=[\w-]{32}$/m);
  const other = new OpenAI({ baseURL: first.openai.baseURL, apiKey: 'anything' });
  await assert.rejects(other.models.list(), AuthenticationError);
  await first.openai.models.list();
  const second = await start('--json');
  t.match(second.apiKey ?? '', /^[\w-]{32}$/);
  t.not(second.apiKey, first.apiKey);
  const { command, openai } = await start('--no-token');
  await openai.models.list();
  await command.printed(/--no-token lets every user of this machine spend your money/);
  t.notMatch(command.output(), /export OPENAI_API_KEY/);
  const { code, err } = await callerCommand({ ...env, SPEECHGATE_BRIDGE_TOKEN: 'sesame' }, 'bridge', '--no-token');
  t.strictSame([code, err.trim().split('\n').length], [2, 2], err);
});

test('a token file sets the API key, which is never printed', async (t) => {
  const { folder, start, env } = await scene(t);
  const path = join(folder, 'token');
  await writeFile(path, 'open-sesame\n', { mode: 0o644 });
  const open = await callerCommand(env, 'bridge', '--token-file', path);
  t.equal(open.code, 2);
  t.match(open.err, /^--token-file: other users of this machine own .* or can read it/);
  await chmod(path, 0o600);
  const { command, openai } = await start('--token-file', path, '--json');
  await assert.rejects(openai.models.list(), AuthenticationError);
  const known = new OpenAI({ baseURL: openai.baseURL, apiKey: 'open-sesame' });
  t.ok((await (await known.audio.speech.create(ORDER)).arrayBuffer()).byteLength > 0);
  await command.printed(/"chargedMicroUsd":\s*198/);
  t.notMatch(command.output(), /open-sesame|Hello/);
});

test('--host and --allow-origin start nothing without a token of the user', async (t) => {
  const { env, start } = await scene(t);
  for (const [option, value] of Object.entries({ '--host': '0.0.0.0', '--allow-origin': 'http://localhost:3000' })) {
    for (const more of [[], ['--no-token']]) {
      const { code, err } = await callerCommand(env, 'bridge', '--port', '0', option, value, ...more);
      const needed = `${option} needs a token that you choose. Set it with --token-file FILE or SPEECHGATE_BRIDGE_TOKEN.`;
      t.strictSame([code, err], [2, `${needed} Nothing was started.\nUsage: speechgate bridge\n`]);
    }
  }
  Object.assign(env, { SPEECHGATE_BRIDGE_TOKEN: 'sesame' });
  const { command } = await start('--host', '0.0.0.0', '--allow-origin', 'http://localhost:3000');
  await command.printed(/has your token can spend your money, up to your caps\. The connection is not encrypted\./);
});

test('wrong options exit with 2 and the usage; missing funds exit with 3', async (t) => {
  const { env, folder, start } = await scene(t);
  const { openai } = await start();
  const token = join(folder, 'token');
  await writeFile(token, 'open-sesame', { mode: 0o600 });
  const { port } = new URL(openai.baseURL);
  for (const [args, message] of [
    [['--port', port], /^--port \d+ is in use\./],
    [['--port', '70000'], /^--port must be/],
    [['--max-per-day', 'much'], /^--max-per-day must be US dollars/],
    [['--token-file', '/nowhere'], /^The file of --token-file cannot be read/],
    [['--pay', 'gold'], /^--pay must be/],
    [['--allow-origin', 'http://localhost:3000/'], /^--allow-origin must be the origin of a page/],
    [['--host', '192.0.2.1', '--token-file', token], /^--host 192\.0\.2\.1 is not an address of this machine\./],
  ] as const) {
    const { code, err } = await callerCommand(env, 'bridge', ...args);
    t.equal(code, 2, err);
    t.match(err, message);
    t.match(err, /^[^\n]+\nUsage: speechgate bridge\n$/);
  }
  const { SPEECHGATE_ACCOUNT: _, ...penniless } = env;
  const { code, err } = await callerCommand(penniless, 'bridge');
  t.equal(code, 3);
  t.match(err, /speechgate top-up/);
});
