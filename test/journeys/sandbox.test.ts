import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import { type Test, test } from 'tap';
import type { SignedServiceMetadata, TtsJob, VoicesResponse } from '../../src/contract/types.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { SandboxFile } from '../../src/sandbox/sandbox-file.ts';
import { decode, rootMeanSquare } from '../sandbox/voice/sound.ts';
import { startChild, startCommand } from '../support/child.ts';
import { emptyDatabase, testDatabase } from '../support/database.ts';
import { blocksOf, runBlocks, shell } from '../support/documentation.ts';
import { withoutProbe } from '../support/probed-audio.ts';
import { PROJECT } from '../support/project.ts';
import { copyProject } from '../support/project-copy.ts';
import { leftProcesses, sandboxFolder } from '../support/sandbox-folder.ts';
import { testUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const PROGRAM = 'src/sandbox/main.ts';
const READY = /Ctrl-C stops the sandbox/;

/** What an operator's shell may hold. Nobody listens there. */
const PRODUCTION = {
  BASE_URL: 'https://speech.invalid',
  AUDIO_STORE: 's3://production',
  X402_PAY_TO: `0x${'ab'.repeat(20)}`,
  X402_FACILITATOR_URL: 'https://facilitator.invalid',
  X402_FACILITATOR_AUTH: 'secret',
  STRIPE_SECRET_KEY_FILE: '/nowhere/key',
  X402_RPC_URL: 'https://node.invalid',
  X402_NETWORK: 'eip155:84532',
  X402_ASSET: `0x${'cd'.repeat(20)}`,
  X402_ASSET_NAME: 'USDC',
  X402_ASSET_VERSION: '1',
  STRIPE_SECRET_KEY: 'sk_live_production',
  STRIPE_API_BASE: 'https://processor.invalid',
  CHECKOUT_ORIGIN: 'https://checkout.invalid',
  SIGNING_KEYS_FILE: '/nowhere/keys.json',
  SMTP_URL: 'smtp://mail.invalid:587',
  FEEDBACK_FROM: 'a@b.invalid',
  FEEDBACK_TO: 'c@d.invalid',
};

const fileOf = async (dataDir: string): Promise<SandboxFile> =>
  JSON.parse(await readFile(join(dataDir, 'sandbox.json'), 'utf8'));

const balanceOf = async ({ baseUrl, creditAccount }: SandboxFile): Promise<number> =>
  ((await (await fetch(`${baseUrl}/credits/${creditAccount}`)).json()) as { balanceMicroUsd: number }).balanceMicroUsd;

/** A database without tables, and how many it has. */
async function foreignDatabase(t: Test): Promise<{ url: string; tables(): Promise<number> }> {
  const { url } = await emptyDatabase(t);
  return {
    url,
    tables: async () => {
      const client = new pg.Client(url);
      await client.connect();
      const { rows } = await client.query("select from pg_tables where schemaname = 'public'");
      await client.end();
      return rows.length;
    },
  };
}

/** An amount as it is printed, such as 0.099100. */
const microUsd = (usd: string | undefined): number => Number(usd?.replace('.', ''));

test('R63: the sandbox ignores the settings of production, and its printed commands work', {
  skip: withoutProbe,
}, async (t) => {
  const dataDir = await sandboxFolder(t);
  const port = await freePort();
  const env = { DATA_DIR: dataDir, PORT: String(port) };
  const foreign = await foreignDatabase(t);
  const first = startChild(t, PROGRAM, { ...PRODUCTION, ...env, DATABASE_URL: foreign.url });
  await first.printed(READY);
  const sandbox = await fileOf(dataDir);
  t.match(first.output(), /voice, which reads English only/);
  const more = await readFile(join(dataDir, 'try.txt'), 'utf8');
  t.ok(more.includes(`All data is in ${dataDir}.`), 'the folder was empty, and all fits into it');
  let walletMicroUsd = 0;

  await t.test('R63: nothing leads to production', async (t) => {
    t.equal(sandbox.baseUrl, `http://127.0.0.1:${port}`);
    t.notMatch(first.output(), /invalid/);
    t.not(sandbox.databaseUrl, foreign.url);
    t.equal(await foreign.tables(), 0);
    const metadata = await fetch(`${sandbox.baseUrl}/.well-known/x402-service-metadata`);
    const { payload } = (await metadata.json()) as SignedServiceMetadata;
    t.strictSame([payload.payment.asset.address, payload.service.origin], [sandbox.chain?.asset, sandbox.baseUrl]);
    t.not(payload.payment.payees[0]?.address.toLowerCase(), PRODUCTION.X402_PAY_TO);
  });

  await t.test('a browser that loads its page can speak at once', async (t) => {
    const headers = { accept: 'text/html', 'sec-fetch-dest': 'document' };
    const page = await (await fetch(sandbox.baseUrl, { headers })).text();
    t.ok(page.includes(`id="account" value="${sandbox.creditAccount}"`));
  });

  await t.test('its own voice has made samples, which cost nothing', async (t) => {
    const funded = await balanceOf(sandbox);
    await until(async () => (await fetch(`${sandbox.baseUrl}/tts/voices/provider-a_alloy/sample`)).status === 200);
    const { voices } = (await (await fetch(`${sandbox.baseUrl}/tts/voices`)).json()) as VoicesResponse;
    const sample = await fetch(voices.find(({ id }) => id === 'provider-a_alloy')?.sampleUrl ?? '');
    t.ok(rootMeanSquare(decode(Buffer.from(await sample.arrayBuffer()))) > 0.01);
    t.equal(await balanceOf(sandbox), funded);
  });

  await t.test('the commands of curl speak for the demo account', async (t) => {
    const funded = await balanceOf(sandbox);
    const commands = more.replaceAll('\\\n', ' ').match(/^ {2}curl .+$/gm) ?? [];
    t.ok(commands.length >= 4, 'commands are written');
    const answers = commands.map((command) =>
      execFileSync('sh', ['-euc', command], { cwd: dataDir, stdio: 'pipe' }).toString(),
    );
    const spoken = ['Hello world, this is speech paid by the character.', 'Hello world', 'Fetch me later.'];
    t.equal(await balanceOf(sandbox), funded - 18 * spoken.join('').length, 'the price is ceil(characters x rate)');
    for (const name of ['hello.mp3', 'slow.mp3']) {
      const mp3 = await readFile(join(dataDir, name));
      const options = ['-v', 'error', '-show_entries', 'stream=codec_name', '-of', 'csv=p=0', join(dataDir, name)];
      t.equal(execFileSync('ffprobe', options).toString().trim(), 'mp3');
      t.ok(rootMeanSquare(decode(mp3)) > 0.01, `${name} is not silent`);
    }
    const job = answers.find((answer) => answer.includes('"jobId"')) ?? assert.fail('no command makes a job');
    let { status, links } = JSON.parse(job) as TtsJob;
    await until(async () => {
      ({ status, links } = (await (await fetch(links.status)).json()) as TtsJob);
      return status === 'completed';
    });
    t.equal((await fetch(links.audio ?? '')).status, 200);
  });

  await t.test('the first screen has eight lines, and then each request prints one', async (t) => {
    const [, screen = ''] = first.output().split(/Ready\n\n/);
    const [lines = '', requests = ''] = screen.split('\n\n');
    t.equal(lines.split('\n').length, 8, lines);
    t.match(lines, /id of Base, 8453: use only the demo wallet/);
    t.match(requests, /^\d\d:\d\d:\d\d {2}POST \/tts {2}200 {2}50 characters {2}\$0\.000900 {2}\d+ ms$/m);
    t.ok(!requests.includes(sandbox.creditAccount), 'a path names no account');
    const [, curl = ''] = /^ {2}by curl {2}(.+)$/m.exec(lines) ?? [];
    const before = await balanceOf(sandbox);
    execFileSync('sh', ['-euc', curl], { cwd: dataDir, stdio: 'pipe' });
    t.equal(await balanceOf(sandbox), before - 18 * 'Hello'.length);
  });

  await t.test('the commands of npm pay by signatures of the demo wallet', async (t) => {
    const signed = more.match(/^ {2}DATA_DIR='.+' npm run -s prepaid -- .+$/gm) ?? [];
    t.equal(signed.length, 4);
    // The third is a GET, which the demo pays too.
    const answers = signed.toSpliced(2, 1).map((command) => {
      const elsewhere = command.replace('npm run', `npm --prefix '${PROJECT}' run`);
      return execFileSync('sh', ['-euc', elsewhere], { cwd: dataDir, stdio: 'pipe' }).toString();
    });
    const [deposited = '', post = '', read = ''] = answers;
    t.equal(JSON.parse(deposited).balanceMicroUsd, 1_000_000);
    const price = 18 * 'Hello world, paid by a signature.'.length;
    t.match(post, new RegExp(`^x-x402-charged: ${price}\\b`, 'm'));
    walletMicroUsd = JSON.parse(read).balanceMicroUsd;
    t.equal(walletMicroUsd, 1_000_000 - price);
    const file = /The speech is in (.+)\n$/.exec(post)?.[1] ?? assert.fail(post);
    t.ok(rootMeanSquare(decode(await readFile(join(dataDir, file)))) > 0.01);
  });

  await t.test('the demo pays in each flow', async () => {
    const demo = startChild(t, 'src/sandbox/demo.ts', env);
    assert.equal(await demo.ended(), 0, demo.output());
    const shown = demo.output();
    assert.match(shown, /POST \/x402\/tts\n.*direct-post\.mp3\n {2}paid 0\.000720 USDC/);
    assert.match(shown, /credited 0\.100000 USD for transaction 0x[0-9a-f]{64}/);
    const [, owned] = / has (\d+\.\d{6}) USD/.exec(shown) ?? [];
    assert.equal(microUsd(owned), walletMicroUsd + 100_000, 'the deposit adds to the balance');
    const steps = [...shown.matchAll(/charged (\S+) USD, (\S+) USD left/g)].map(([, charged, left]) => ({
      charged: microUsd(charged),
      left: microUsd(left),
    }));
    const texts = [
      'This was paid from a balance, against a signature.',
      'A query is signed, however it was "encoded": it\'s the same!',
      'This was spoken by the better model.',
    ];
    assert.deepEqual(
      steps.map(({ charged }) => charged),
      texts.map((text, at) => (at === 2 ? 36 : 18) * text.length),
      'the price is that of the model',
    );
    for (const [at, { charged, left }] of steps.entries())
      assert.equal(left, (at === 0 ? microUsd(owned) : (steps[at - 1]?.left as number)) - charged);
    for (const file of ['direct-post.mp3', 'prepaid-post.mp3', 'prepaid-get.mp3', 'prepaid-hd.mp3'])
      assert.ok(rootMeanSquare(decode(await readFile(join(dataDir, 'demo', file)))) > 0.01, `${file} is not silent`);
  });

  await t.test('README: its commands run as printed', async (t) => {
    const folder = await copyProject(t);
    for (const name of ['node_modules', 'dist']) await symlink(join(PROJECT, name), join(folder, name));
    await symlink(dataDir, join(folder, 'data'));
    const [start, ...blocks] = (await blocksOf('README.md')).map(({ language, code }) => ({
      language,
      code: code.replaceAll('127.0.0.1:8080', `127.0.0.1:${port}`),
    }));
    t.equal(start?.code, 'npm ci && npm run sandbox');
    const { url } = await testDatabase(t);
    const service = { DATABASE_URL: url, PORT: String(await freePort()) };
    const isService = ({ code }: { code: string }) => /^npm start$/m.test(code);
    await runBlocks(
      t,
      blocks.filter((block) => !isService(block)),
      { folder, env: { SPEECHGATE_CONFIG_DIR: join(folder, 'config') } },
    );
    const started = blocks.filter(isService).map(({ code }) => shell(t, folder, code, service));
    t.equal(started.length, 1);
    for (const command of started) await command.printed(/listens on/);
    for (const command of started) await command.stop();
  });

  await t.test("R63: operators' commands find its database", async () => {
    const command = startChild(t, 'src/speechgate.ts', { DATA_DIR: dataDir }, ['doctor', '--no-speak']);
    assert.equal(await command.ended(), 0, command.output());
    assert.match(command.output(), new RegExp(`This uses the sandbox in ${dataDir}`));
    assert.match(
      command.output(),
      /mail server are local.*skipped +rights .*ok +node \(1 of 1\) +The node's newest block/s,
    );
  });

  await t.test('a second one in the folder names the first, even with another database', async () => {
    const second = startChild(t, PROGRAM, { ...env, SANDBOX_DATABASE_URL: foreign.url });
    assert.equal(await second.ended(), 78, second.output());
    const { pid } = first.process;
    assert.ok(
      second.output().includes(`Process ${pid} already runs a sandbox in ${dataDir}, at ${sandbox.baseUrl}`),
      second.output(),
    );
    assert.doesNotMatch(second.output(), /^\s+at /m, 'no stack');
    assert.deepEqual(await fileOf(dataDir), sandbox);
    assert.equal((await fetch(sandbox.baseUrl)).status, 200);
  });

  await t.test('after kill -9 it starts with its ledger, on another port if its own is taken', async () => {
    const spent = await balanceOf(sandbox);
    assert.equal(await first.stop('SIGKILL'), null);
    const squatter = createServer().listen(port, '127.0.0.1');
    t.teardown(() => squatter.close());
    const refused = startChild(t, PROGRAM, { ...env, SANDBOX_DATABASE_URL: 'postgres://127.0.0.1:1/none' });
    assert.equal(await refused.ended(), 1, refused.output());
    const second = startCommand(t, ['npm', 'run', 'sandbox'], { env, isGroup: true });
    await second.printed(READY);
    const afterKill = await fileOf(dataDir);
    assert.notEqual(afterKill.baseUrl, sandbox.baseUrl);
    assert.ok(second.output().includes(`listens on ${afterKill.baseUrl}, since port ${port} is taken`));
    assert.equal(afterKill.creditAccount, sandbox.creditAccount);
    assert.equal(await balanceOf(afterKill), spent);
    assert.deepEqual(await leftProcesses(dataDir), ['database', 'chain']);
    second.process.kill('SIGHUP');
    await second.ended();
    assert.deepEqual(await leftProcesses(dataDir), [], 'the sandbox stops with npm');
    const late = startChild(t, 'src/speechgate.ts', { DATA_DIR: dataDir }, ['audit']);
    assert.equal(await late.ended(), 78);
    assert.match(late.output(), /^No sandbox runs in .*\. If one did, .*\.\nDATABASE_URL is not set\. /);
  });

  await t.test('a second Ctrl-C ends the sandbox and its children at once', async (t) => {
    const upstream = await testUpstream(t);
    upstream.mode = () => {};
    const busy = startChild(t, PROGRAM, { ...env, SPEECH_BASE_URL: upstream.url });
    await busy.printed(READY);
    const { baseUrl, creditAccount } = await fileOf(dataDir);
    const headers = { 'x-credit-account': creditAccount, 'content-type': 'text/plain' };
    const waiting = fetch(`${baseUrl}/tts`, { method: 'POST', headers, body: 'Hello' }).catch(() => {});
    await upstream.waitForRequests(1);
    busy.process.kill('SIGINT');
    await busy.printed(/Stopping…/);
    await until(() => busy.process.exitCode !== null || !busy.process.kill('SIGINT'));
    t.equal(await busy.ended(), 130, busy.output());
    await waiting;
    await until(async () => (await leftProcesses(dataDir)).length === 0);
  });

  await t.test('a folder that cannot be written is named in one line', async () => {
    await writeFile(join(dataDir, 'file'), '');
    const folder = join(dataDir, 'file', 'data');
    const refused = startChild(t, PROGRAM, { ...env, DATA_DIR: folder });
    assert.equal(await refused.ended(), 78);
    const advice = `Make ${folder} a folder that you can write to, or choose another DATA_DIR.`;
    assert.ok(refused.output().endsWith(`is not writable (ENOTDIR). ${advice}\n`), refused.output());
  });

  await t.test('a signal during the start leaves no process', async () => {
    const early = startChild(t, PROGRAM, env);
    await early.printed(/Starting PostgreSQL/);
    assert.equal(await early.stop('SIGTERM'), 0, early.output());
    assert.doesNotMatch(early.output(), /because of an error/);
    assert.deepEqual(await leftProcesses(dataDir), []);
  });
});

test('a sandbox uses SANDBOX_DATABASE_URL, and a second one on it names the first', async (t) => {
  const { url } = await testDatabase(t);
  const dataDir = await sandboxFolder(t);
  const start = async (folder: string) =>
    startChild(t, PROGRAM, { PORT: String(await freePort()), DATA_DIR: folder, SANDBOX_DATABASE_URL: url });
  const first = await start(dataDir);
  await first.printed(READY);
  t.match(await readFile(join(dataDir, 'try.txt'), 'utf8'), /The database is that of SANDBOX_DATABASE_URL/);
  t.equal((await fileOf(dataDir)).databaseUrl, url);
  const second = await start(await sandboxFolder(t));
  t.equal(await second.ended(), 78, second.output());
  t.match(second.output(), new RegExp(`Process ${first.process.pid} already runs a sandbox on the database`));
  first.process.kill('SIGTERM');
  await first.printed(/Stopping/);
  first.process.kill('SIGTERM');
  t.equal(await first.stop('SIGHUP'), 0, first.output());
  t.match(first.output(), /Stopped\n$/);
  t.strictSame(await leftProcesses(dataDir), []);
});
