import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts';
import { findAnvil, whyUnrunnable } from '../../src/sandbox/chain/anvil.ts';
import { ASSET } from '../../src/sandbox/chain/chain-client.ts';
import { fund } from '../../src/sandbox/chain/fund.ts';
import { startChain } from '../../src/sandbox/local-chain.ts';
import { included, wallet } from '../support/chain.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';
import { until } from '../support/until.ts';
import { balance, kill, SOMEBODY, skip, start } from './chain-folder.ts';

test('R25: balances, logs, contracts and the port survive a stop, and time goes on', { skip }, async (t) => {
  const dataDir = await sandboxFolder(t);
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n, ether: 7n });
  const accounts = Array.from({ length: 24 }, () => privateKeyToAddress(generatePrivateKey()));
  for (const address of accounts)
    await first.client.setCode({ address, bytecode: `0x${randomBytes(500_000).toString('hex')}` });
  const head = await first.client.getBlockNumber();
  await t.test('the chain listens on loopback only, and its files are private to the owner', async (t) => {
    const sockets = (await readFile('/proc/net/tcp', 'utf8')).split('\n').map((line) => line.trim().split(/\s+/));
    const port = Number(new URL(first.rpcUrl).port).toString(16).toUpperCase().padStart(4, '0');
    const listening = sockets.filter(([, local, , state]) => state === '0A' && local?.endsWith(`:${port}`));
    const told = listening.map(([, local]) => local);
    t.strictSame(told, [`0100007F:${port}`]);
    t.equal((await stat(join(dataDir, 'chain'))).mode & 0o777, 0o700);
    t.ok((await readdir(join(dataDir, 'chain'))).includes('state.json'));
  });
  await first.stop();
  t.equal(await findAnvil(join(dataDir, 'chain')), undefined);
  t.ok((await stat(join(dataDir, 'chain/state.json'))).size > 20_000_000);
  const second = await start(t, { dataDir });
  t.equal(second.rpcUrl, first.rpcUrl);
  t.strictSame([await balance(second.client), await second.client.getBalance({ address: SOMEBODY })], [5n, 7n]);
  t.ok((await second.client.getBlockNumber()) >= head);
  const logs = await second.client.getLogs({ address: ASSET, fromBlock: 0n });
  t.equal(logs.length, 1);
  for (const address of accounts) t.equal((await second.client.getCode({ address }))?.length, 2 + 2 * 500_000);
  t.equal((await second.client.getTransactionReceipt({ hash: logs[0]?.transactionHash ?? '0x' })).status, 'success');
  const { timestamp } = await second.client.getBlock();
  t.ok(Math.abs(Number(timestamp) - Date.now() / 1000) < 60);
  await fund(second.client, SOMEBODY, { usdc: 5n });
  t.equal(await balance(second.client), 10n);
});

test('persisted state survives kill -9 of the chain, and block numbers are not reused', { skip }, async (t) => {
  const dataDir = await sandboxFolder(t);
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n });
  await first.persist();
  await first.client.mine({ blocks: 10 });
  const seen = await first.client.getBlockNumber();
  await kill(first);
  const second = await start(t, { dataDir });
  t.equal(await balance(second.client), 5n);
  t.ok((await second.client.getBlockNumber()) >= seen);
});

test('a damaged state file is named and not overwritten', { skip }, async (t) => {
  const dataDir = await sandboxFolder(t);
  const file = join(dataDir, 'chain/state.json');
  await (await start(t, { dataDir })).stop();
  const whole = await readFile(file, 'utf8');
  for (const damaged of ['', whole.slice(0, whole.length / 2), 'null']) {
    await writeFile(file, damaged);
    await t.rejects(startChain({ dataDir }), /state\.json, is damaged\. Remove it/);
    t.equal(await readFile(file, 'utf8'), damaged);
  }
});

test('R44: a transaction gets its two confirmations without another one', { skip }, async (t) => {
  const chain = await start(t, { dataDir: await sandboxFolder(t), blockTime: 1 });
  const payer = await wallet(chain.client, 5n);
  const hash = await included(chain.client, chain.client.sendTransaction({ account: payer, to: SOMEBODY, value: 1n }));
  await until(async () => (await chain.client.getTransactionConfirmations({ hash })) >= 2n);
});

test('a missing anvil is reported in the result', async (t) => {
  const dataDir = await sandboxFolder(t);
  const original = Object.getOwnPropertyDescriptor(process, 'platform');
  assert.ok(original);
  t.teardown(() => Object.defineProperty(process, 'platform', original));
  Object.defineProperty(process, 'platform', { ...original, value: 'sunos' });
  const result = await startChain({ dataDir });
  assert.ok(!result.available);
  t.match(result.reason, /^anvil, which runs the local chain, is not installed \(sunos-/);
  Object.defineProperty(process, 'platform', original);
  t.match((await whyUnrunnable(join(dataDir, 'absent'))) ?? '', /ENOENT/);
});
