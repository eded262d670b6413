import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { SandboxFile } from '../../src/sandbox/sandbox-file.ts';
import { decode, rootMeanSquare } from '../speech/embedded/sound.ts';
import { startChild } from '../support/child.ts';
import { hear, withoutRecognizer } from '../support/hearing.ts';

const PROGRAM = 'src/sandbox/main.ts';

test('the sandbox: its printed commands work as they stand, and it survives Ctrl-C and kill -9', {
  skip: withoutRecognizer,
}, async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), 'speechgate-sandbox-'));
  t.after(() => rm(dataDir, { recursive: true, force: true }));
  const port = await freePort(undefined);
  const env = { DATA_DIR: dataDir, PORT: String(port) };
  const sandboxFile = async (): Promise<SandboxFile> =>
    JSON.parse(await readFile(join(dataDir, 'sandbox.json'), 'utf8'));
  const balance = async ({ baseUrl, creditAccount }: SandboxFile) =>
    ((await (await fetch(`${baseUrl}/credits/${creditAccount}`)).json()) as { balanceMicroUsd: number })
      .balanceMicroUsd;

  const first = startChild(t, PROGRAM, env);
  await first.printed(/Ctrl-C stops the sandbox/);
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
  const words = await hear(await readFile(join(dataDir, 'hello.mp3')));
  for (const word of ['hello', 'world', 'speech'])
    assert.ok(words.includes(word), `${word} is heard in: ${words.join(' ')}`);

  const demo = startChild(t, 'src/sandbox/demo.ts', env);
  await demo.printed(/POST \/x402\/tts\n.*direct-post\.mp3\n {2}paid 0\.000720 USDC/);
  assert.ok((await hear(await readFile(join(dataDir, 'demo', 'direct-post.mp3')))).includes('transfer'));

  const spent = await balance(sandbox);
  assert.equal(await first.stop('SIGKILL'), null);
  const second = startChild(t, PROGRAM, env);
  await second.printed(/Ctrl-C stops the sandbox/);
  const afterKill = await sandboxFile();
  assert.equal(afterKill.creditAccount, sandbox.creditAccount);
  assert.equal(await balance(afterKill), spent, 'the ledger survives kill -9');
  assert.equal(await second.stop('SIGINT'), 0);

  const squatter = createServer().listen(port, '127.0.0.1');
  t.after(() => squatter.close());
  const third = startChild(t, PROGRAM, env);
  await third.printed(/Ctrl-C stops the sandbox/);
  const elsewhere = await sandboxFile();
  assert.notEqual(elsewhere.baseUrl, sandbox.baseUrl, 'a taken port is replaced by a free one');
  assert.equal(await balance(elsewhere), spent);
  assert.equal(await third.stop('SIGTERM'), 0);
});
