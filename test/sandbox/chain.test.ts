import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts';
import { findAnvil, whyUnrunnable } from '../../src/sandbox/chain/anvil.ts';
import { ASSET, type ChainClient } from '../../src/sandbox/chain/chain-client.ts';
import { fund } from '../../src/sandbox/chain/fund.ts';
import { startChain } from '../../src/sandbox/local-chain.ts';
import { included, wallet, withoutMining } from '../support/chain.ts';
import { reorganize } from '../support/reorganize.ts';
import { balance, kill, newDirectory, SOMEBODY, skip, start } from './chain-folder.ts';

test('R25: balances, logs, contracts and the port survive a stop, and time goes on', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n, ether: 7n });
  const head = await first.client.getBlockNumber();

  await t.test('the chain listens on loopback only, and its files are private to the owner', async () => {
    const sockets = (await readFile('/proc/net/tcp', 'utf8')).split('\n').map((line) => line.trim().split(/\s+/));
    const port = Number(new URL(first.rpcUrl).port).toString(16).toUpperCase().padStart(4, '0');
    const listening = sockets.filter(([, local, , state]) => state === '0A' && local?.endsWith(`:${port}`));
    assert.deepEqual(
      listening.map(([, local]) => local),
      [`0100007F:${port}`],
    );
    assert.equal((await stat(join(dataDir, 'chain'))).mode & 0o777, 0o700);
    assert.ok((await readdir(join(dataDir, 'chain'))).includes('state.json'));
  });

  await first.stop();
  assert.equal(await findAnvil(join(dataDir, 'chain')), undefined);

  const second = await start(t, { dataDir });
  assert.equal(second.rpcUrl, first.rpcUrl);
  assert.equal(await balance(second.client), 5n);
  assert.equal(await second.client.getBalance({ address: SOMEBODY }), 7n);
  assert.ok((await second.client.getBlockNumber()) >= head);
  const logs = await second.client.getLogs({ address: ASSET, fromBlock: 0n });
  assert.equal(logs.length, 1);
  const hash = logs[0]?.transactionHash ?? '0x';
  assert.equal((await second.client.getTransactionReceipt({ hash })).status, 'success');
  const { timestamp } = await second.client.getBlock();
  assert.ok(Math.abs(Number(timestamp) - Date.now() / 1000) < 60);
  await fund(second.client, SOMEBODY, { usdc: 5n });
  assert.equal(await balance(second.client), 10n);
});

test('persisted state survives kill -9 of the chain, and block numbers are not reused', {
  skip,
}, async (t) => {
  const dataDir = await newDirectory();
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n });
  await first.persist();
  await first.client.mine({ blocks: 10 });
  const seen = await first.client.getBlockNumber();
  await kill(first);

  const second = await start(t, { dataDir });
  assert.equal(await balance(second.client), 5n);
  assert.ok((await second.client.getBlockNumber()) >= seen);
});

test('a state of tens of megabytes is persisted and restored', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const first = await start(t, { dataDir });
  const accounts = Array.from({ length: 24 }, () => privateKeyToAddress(generatePrivateKey()));
  for (const address of accounts)
    await first.client.setCode({ address, bytecode: `0x${randomBytes(500_000).toString('hex')}` });
  await first.stop();
  assert.ok((await stat(join(dataDir, 'chain/state.json'))).size > 20_000_000);

  const second = await start(t, { dataDir });
  for (const address of accounts) assert.equal((await second.client.getCode({ address }))?.length, 2 + 2 * 500_000);
});

test('a damaged state file is named and not overwritten', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const file = join(dataDir, 'chain/state.json');
  const first = await start(t, { dataDir });
  await first.stop();
  const whole = await readFile(file, 'utf8');
  for (const damaged of ['', whole.slice(0, whole.length / 2), 'null']) {
    await writeFile(file, damaged);
    await assert.rejects(startChain({ dataDir }), /state\.json is damaged\. Remove it/);
    assert.equal(await readFile(file, 'utf8'), damaged);
  }
});

test('R44: a transaction gets its two confirmations without another one', { skip }, async (t) => {
  const chain = await start(t, { dataDir: await newDirectory(), blockTime: 1 });
  const payer = await wallet(chain.client, 5n);
  const hash = await included(chain.client, chain.client.sendTransaction({ account: payer, to: SOMEBODY, value: 1n }));
  const { confirmations } = await confirmed(chain.client, hash);
  assert.ok(confirmations >= 2n);
});

async function confirmed(client: ChainClient, hash: `0x${string}`): Promise<{ confirmations: bigint }> {
  for (let attempt = 0; attempt < 300; attempt += 1) {
    const confirmations = await client.getTransactionConfirmations({ hash });
    if (confirmations >= 2n) return { confirmations };
    await sleep(50);
  }
  throw new Error('No block came on top of the transaction.');
}

test('tests can hold back and drop transactions and undo blocks', { skip }, async (t) => {
  const { client } = await start(t, { dataDir: await newDirectory() });
  const payer = await wallet(client);
  const send = (value: bigint) => client.sendTransaction({ account: payer, to: SOMEBODY, value });
  const ether = () => client.getBalance({ address: SOMEBODY });

  await withoutMining(client, async () => {
    const dropped = await send(1n);
    await client.dropTransaction({ hash: dropped });
    await send(2n);
    assert.equal(await ether(), 0n);
  });
  assert.equal(await ether(), 2n);

  const before = await client.getBlockNumber();
  const undone = await included(client, send(4n));
  assert.equal(await ether(), 6n);
  await reorganize(client, 1);
  assert.equal(await ether(), 2n);
  assert.equal(await client.getBlockNumber(), before + 1n);
  await assert.rejects(client.getTransactionReceipt({ hash: undone }), { name: 'TransactionReceiptNotFoundError' });
  await included(client, send(8n));
  assert.equal(await ether(), 10n);
});

test('a missing anvil is reported in the result', async (t) => {
  const dataDir = await newDirectory();
  const original = Object.getOwnPropertyDescriptor(process, 'platform');
  assert.ok(original);
  t.teardown(() => Object.defineProperty(process, 'platform', original));
  Object.defineProperty(process, 'platform', { ...original, value: 'sunos' });
  const result = await startChain({ dataDir });
  assert.ok(!result.available);
  assert.match(result.reason, /not available on this platform \(sunos-/);
  Object.defineProperty(process, 'platform', original);

  assert.match((await whyUnrunnable(join(dataDir, 'absent'))) ?? '', /ENOENT/);
});
