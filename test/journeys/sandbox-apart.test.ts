import assert from 'node:assert/strict';
import { chmod, mkdir, readFile, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { type Test, test } from 'tap';
import type { SignedServiceMetadata, TtsJob } from '../../src/contract/types.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { SandboxFile } from '../../src/sandbox/sandbox-file.ts';
import { type Child, startChild } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';
import { until } from '../support/until.ts';

const READY = /Ctrl-C stops the sandbox/;

async function startSandbox(t: Test, env: Record<string, string>): Promise<Child> {
  return startChild(t, 'src/sandbox/main.ts', { PORT: String(await freePort()), ...env });
}

const fileOf = async (dataDir: string): Promise<SandboxFile> =>
  JSON.parse(await readFile(join(dataDir, 'sandbox.json'), 'utf8'));

const isServed = async ({ baseUrl }: SandboxFile) => (await fetch(baseUrl)).status === 200;

test('R63: the sandbox leaves DATABASE_URL alone, and commands find its own database', async (t) => {
  const { url } = await testDatabase(t);
  const dataDir = await sandboxFolder(t);
  const admin = new pg.Client(url);
  await admin.connect();
  t.teardown(() => admin.end());
  await admin.query('drop schema public cascade; create schema public');
  const sandbox = await startSandbox(t, { DATA_DIR: dataDir, DATABASE_URL: url });
  await sandbox.printed(READY);
  const { rows } = await admin.query("select from pg_tables where schemaname = 'public'");
  assert.equal(rows.length, 0);
  const file = await fileOf(dataDir);
  assert.notEqual(file.databaseUrl, url);

  const audit = startChild(t, 'src/speechgate.ts', { DATA_DIR: dataDir }, ['audit']);
  assert.equal(await audit.ended(), 0, audit.output());
  assert.match(audit.output(), new RegExp(`This uses the sandbox in ${dataDir}`));
  assert.match(audit.output(), /^holds /m);
  for (const [args, shown] of [
    [['audit', '--external'], /holds {3}each credited purchase is a paid session/],
    [['reconcile'], /checkout_sweep +\d+ done/],
  ] as const) {
    const command = startChild(t, 'src/speechgate.ts', { DATA_DIR: dataDir }, [...args]);
    assert.equal(await command.ended(), 0, command.output());
    assert.match(command.output(), shown);
  }
  assert.equal(await sandbox.stop(), 0);

  const late = startChild(t, 'src/speechgate.ts', { DATA_DIR: dataDir }, ['audit']);
  assert.equal(await late.ended(), 78, 'it has stopped');
  assert.match(late.output(), /^No sandbox runs in .*\.\nDATABASE_URL is not set\. /);
});

/** What an operator's shell may hold. Nobody listens there. */
const PRODUCTION = {
  BASE_URL: 'https://speech.invalid',
  AUDIO_STORE: 's3://production',
  X402_PAY_TO: `0x${'ab'.repeat(20)}`,
  X402_FACILITATOR_URL: 'https://facilitator.invalid',
  X402_FACILITATOR_AUTH: 'secret',
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

test('R63: the sandbox ignores production settings in its environment', async (t) => {
  const dataDir = await sandboxFolder(t);
  const sandbox = await startSandbox(t, { DATA_DIR: dataDir, ...PRODUCTION });
  await sandbox.printed(READY);
  const { baseUrl, chain, creditAccount } = await fileOf(dataDir);
  assert.equal(new URL(baseUrl).hostname, '127.0.0.1');
  assert.doesNotMatch(sandbox.output(), /invalid/);
  const asJob = async (answer: Promise<Response>) => (await (await answer).json()) as TtsJob;
  const headers = { 'x-credit-account': creditAccount };
  let job = await asJob(fetch(`${baseUrl}/tts?async=true&text=Hello`, { headers }));
  await until(async () => {
    job = await asJob(fetch(job.links.status));
    return job.status === 'completed';
  });
  assert.equal((await fetch(job.links.audio ?? '')).status, 200);
  const { payload } = (await (
    await fetch(`${baseUrl}/.well-known/x402-service-metadata`)
  ).json()) as SignedServiceMetadata;
  assert.deepEqual([payload.payment.asset.address, payload.service.origin], [chain?.asset, baseUrl]);
  assert.notEqual(payload.payment.payees[0]?.address.toLowerCase(), PRODUCTION.X402_PAY_TO);
  assert.equal(await sandbox.stop(), 0);
});

test('a second sandbox in one folder names the first process and changes nothing', async (t) => {
  const dataDir = await sandboxFolder(t);
  const first = await startSandbox(t, { DATA_DIR: dataDir });
  await first.printed(READY);
  assert.ok(first.output().includes(`Everything is kept in ${dataDir}.`), 'the folder was empty, and all fits into it');
  const before = await fileOf(dataDir);
  const second = await startSandbox(t, { DATA_DIR: dataDir });
  assert.equal(await second.ended(), 78, second.output());
  assert.ok(
    second.output().includes(`Process ${first.process.pid} runs a sandbox in ${dataDir} already, on ${before.baseUrl}`),
    second.output(),
  );
  assert.doesNotMatch(second.output(), /^\s+at /m, 'no stack');
  assert.deepEqual(await fileOf(dataDir), before);
  assert.equal(await isServed(before), true);

  const { url } = await testDatabase(t);
  const third = await startSandbox(t, { DATA_DIR: dataDir, SANDBOX_DATABASE_URL: url });
  assert.equal(await third.ended(), 78, third.output());
  assert.ok(third.output().includes(`Process ${first.process.pid} runs a sandbox in ${dataDir}`), third.output());
  assert.deepEqual(await fileOf(dataDir), before, 'also with another database');
  assert.equal(await first.stop(), 0);
});

test('a sandbox in another folder on the same database names the first process', async (t) => {
  const { url } = await testDatabase(t);
  const first = await startSandbox(t, { DATA_DIR: await sandboxFolder(t), SANDBOX_DATABASE_URL: url });
  await first.printed(READY);
  const second = await startSandbox(t, { DATA_DIR: await sandboxFolder(t), SANDBOX_DATABASE_URL: url });
  assert.equal(await second.ended(), 78, second.output());
  assert.match(second.output(), new RegExp(`Process ${first.process.pid} runs a sandbox on the database`));
  assert.equal(await first.stop(), 0);
});

test('a sandbox uses SANDBOX_DATABASE_URL', async (t) => {
  const { url } = await testDatabase(t);
  const dataDir = await sandboxFolder(t);
  const sandbox = await startSandbox(t, { DATA_DIR: dataDir, SANDBOX_DATABASE_URL: url });
  await sandbox.printed(READY);
  assert.match(sandbox.output(), /The database is that of SANDBOX_DATABASE_URL/);
  assert.equal((await fileOf(dataDir)).databaseUrl, url);
  assert.equal(await sandbox.stop(), 0);
});

test('a sandbox names the place of a database moved out of an inaccessible home', {
  skip: process.getuid?.() === 0 ? false : 'only root runs the database as another user',
}, async (t) => {
  const home = await sandboxFolder(t);
  const dataDir = join(home, 'project', 'data');
  await mkdir(join(home, 'project', 'data', 'something'), { recursive: true });
  await chmod(home, 0o700);
  const sandbox = await startSandbox(t, { DATA_DIR: dataDir });
  await sandbox.printed(READY);
  const moved = await realpath(join(dataDir, 'postgres'));
  t.teardown(() => rm(moved, { recursive: true, force: true }));
  assert.ok(!moved.startsWith(home));
  assert.ok(sandbox.output().includes(`The database is kept in ${moved}, all else in ${dataDir}`), sandbox.output());
  assert.equal(await sandbox.stop(), 0);
});
