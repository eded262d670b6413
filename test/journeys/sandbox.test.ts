import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { SandboxFile } from '../../src/sandbox/sandbox-file.ts';
import { decode, rootMeanSquare } from '../sandbox/voice/sound.ts';
import { startChild } from '../support/child.ts';
import { withoutProbe } from '../support/probed-audio.ts';
import { projectFile } from '../support/project.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';

const PROGRAM = 'src/sandbox/main.ts';
const PROJECT = fileURLToPath(projectFile(''));

/** An amount as it is printed, such as 0.099100. */
const microUsd = (usd: string | undefined): number => Number(usd?.replace('.', ''));

/** What an answer that curl has shown says of the prepaid balance. */
const moneyHeaders = (answer: string) => ({
  charged: Number(/^x-x402-charged: (\d+)/m.exec(answer)?.[1]),
  balance: Number(/^x-x402-balance: (\d+)/m.exec(answer)?.[1]),
});

test("the sandbox's printed commands work, and it survives Ctrl-C and kill -9", {
  skip: withoutProbe,
}, async (t) => {
  const dataDir = await sandboxFolder(t);
  const port = await freePort();
  const env = { DATA_DIR: dataDir, PORT: String(port) };
  const sandboxFile = async (): Promise<SandboxFile> =>
    JSON.parse(await readFile(join(dataDir, 'sandbox.json'), 'utf8'));
  const balance = async ({ baseUrl, creditAccount }: SandboxFile) =>
    ((await (await fetch(`${baseUrl}/credits/${creditAccount}`)).json()) as { balanceMicroUsd: number })
      .balanceMicroUsd;

  const first = startChild(t, PROGRAM, env);
  await first.printed(/Ctrl-C stops the sandbox/);
  assert.match(first.output(), /voice, which reads English only/);
  const sandbox = await sandboxFile();
  assert.equal(sandbox.baseUrl, `http://127.0.0.1:${port}`);
  const funded = await balance(sandbox);

  const commands =
    first
      .output()
      .replaceAll('\\\n', ' ')
      .match(/^ {2}curl .+$/gm) ?? [];
  assert.ok(commands.length >= 4, 'commands are printed');
  for (const command of commands) execFileSync('sh', ['-euc', command], { cwd: dataDir, stdio: 'pipe' });
  const spoken = ['Hello world, this is speech paid by the character.', 'Hello world', 'Fetch me later.'];
  assert.equal(await balance(sandbox), funded - 18 * spoken.join('').length, 'the price is ceil(characters x rate)');

  for (const name of ['hello.mp3', 'slow.mp3']) {
    const mp3 = await readFile(join(dataDir, name));
    const probe = execFileSync('ffprobe', [
      '-v',
      'error',
      '-show_entries',
      'stream=codec_name',
      '-of',
      'csv=p=0',
      join(dataDir, name),
    ]);
    assert.equal(probe.toString().trim(), 'mp3');
    assert.ok(rootMeanSquare(decode(mp3)) > 0.01, `${name} is not silent`);
  }
  const signed = first.output().match(/^ {2}DATA_DIR='.+' npm run -s prepaid -- .+$/gm) ?? [];
  const answers = signed.map((command) => {
    const elsewhere = command.replace('npm run', `npm --prefix '${PROJECT}' run`);
    return execFileSync('sh', ['-euc', elsewhere], { cwd: dataDir, stdio: 'pipe' }).toString();
  });
  const [deposited, post, get, read] = answers as [string, string, string, string];
  assert.equal(JSON.parse(deposited).balanceMicroUsd, 1_000_000);
  const [postPrice, getPrice] = ['Hello world, paid by a signature.', 'Hello again'].map((text) => 18 * text.length);
  assert.deepEqual(moneyHeaders(post), { charged: postPrice, balance: 1_000_000 - Number(postPrice) });
  assert.deepEqual(moneyHeaders(get), { charged: getPrice, balance: 1_000_000 - Number(postPrice) - Number(getPrice) });
  assert.equal(JSON.parse(read).balanceMicroUsd, moneyHeaders(get).balance);
  const files = [post, get].map((answer) => /The speech is in (.+)\n$/.exec(answer)?.[1] ?? assert.fail(answer));
  assert.notEqual(files[0], files[1], 'none overwrites another');
  for (const file of files) assert.ok(rootMeanSquare(decode(await readFile(join(dataDir, file)))) > 0.01);

  const demo = startChild(t, 'src/sandbox/demo.ts', env);
  assert.equal(await demo.ended(), 0, demo.output());
  const shown = demo.output();
  assert.match(shown, /POST \/x402\/tts\n.*direct-post\.mp3\n {2}paid 0\.000720 USDC/);
  assert.match(shown, /credited 0\.100000 USD for transaction 0x[0-9a-f]{64}/);
  const [, owned] = / has (\d+\.\d{6}) USD/.exec(shown) ?? [];
  assert.equal(microUsd(owned), JSON.parse(read).balanceMicroUsd + 100_000, 'the deposit adds to the balance');
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
  for (const [at, { charged, left }] of steps.entries()) {
    assert.equal(left, (at === 0 ? microUsd(owned) : (steps[at - 1]?.left as number)) - charged);
  }
  const speech = (file: string) => readFile(join(dataDir, 'demo', file));
  for (const file of ['direct-post.mp3', 'prepaid-post.mp3', 'prepaid-get.mp3', 'prepaid-hd.mp3']) {
    assert.ok(rootMeanSquare(decode(await speech(file))) > 0.01, `${file} is not silent`);
  }
  const spent = await balance(sandbox);
  assert.equal(await first.stop('SIGKILL'), null);
  const second = startChild(t, PROGRAM, env);
  await second.printed(/Ctrl-C stops the sandbox/);
  const afterKill = await sandboxFile();
  assert.equal(afterKill.creditAccount, sandbox.creditAccount);
  assert.equal(await balance(afterKill), spent, 'the ledger survives kill -9');
  assert.equal(await second.stop('SIGINT'), 0);

  const squatter = createServer().listen(port, '127.0.0.1');
  t.teardown(() => squatter.close());
  const third = startChild(t, PROGRAM, env);
  await third.printed(/Ctrl-C stops the sandbox/);
  const elsewhere = await sandboxFile();
  assert.notEqual(elsewhere.baseUrl, sandbox.baseUrl, 'a taken port is replaced by a free one');
  assert.equal(await balance(elsewhere), spent);
  assert.equal(await third.stop('SIGTERM'), 0);
});
