import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, realpath, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Test, t, test } from 'tap';
import type { Address } from 'viem';
import { findAnvil, findBinary, launch, whyUnrunnable } from '../../src/sandbox/chain/anvil.ts';
import { fund, usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { ASSET, type ChainClient, chainClient } from '../../src/sandbox/chain/network.ts';
import { shared } from '../../src/sandbox/chain/persistence.ts';
import { type ChainOptions, startChain } from '../../src/sandbox/chain.ts';
import { included, reorganize, wallet, withoutMining } from '../support/chain.ts';

const skip = findBinary() === undefined ? 'anvil is not installed' : false;
const SOMEBODY: Address = '0x00000000000000000000000000000000000a11ce';

const directories: string[] = [];
t.teardown(() => Promise.all(directories.map((directory) => rm(directory, { recursive: true, force: true }))));

/** Gone with the file's last test. */
async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'speechgate-chain-'));
  directories.push(directory);
  return directory;
}

/** Mines for transactions only, unless told otherwise, and stops with the test at the latest. */
async function start(t: Test, options: ChainOptions) {
  const started = await startChain({ blockTime: 0, ...options });
  assert.ok(started.available);
  t.teardown(started.chain.stop);
  return { ...started.chain, client: chainClient(started.chain.rpcUrl) };
}

/** The anvil of the data directory is killed as by the system's lack of memory, and the chain is given up. */
async function kill(dataDir: string, chain: { stop(): Promise<void> }): Promise<void> {
  const anvil = await findAnvil(join(dataDir, 'chain'));
  assert.ok(anvil);
  process.kill(anvil.pid, 'SIGKILL');
  await chain.stop();
}

const balance = (client: ChainClient) => usdcBalance(client, SOMEBODY);

test('balances, contracts and the port survive a stop, and stop() ends the process', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n, ether: 7n });
  const head = await first.client.getBlockNumber();
  await first.stop();
  assert.equal(await findAnvil(join(dataDir, 'chain')), undefined);

  const second = await start(t, { dataDir });
  assert.equal(second.rpcUrl, first.rpcUrl);
  assert.equal(await balance(second.client), 5n);
  assert.equal(await second.client.getBalance({ address: SOMEBODY }), 7n);
  assert.ok((await second.client.getBlockNumber()) >= head);
  await fund(second.client, SOMEBODY, { usdc: 5n });
  assert.equal(await balance(second.client), 10n);
});

test('logs of before a restart are found after it, and time goes on (R25)', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n });
  await first.stop();
  const second = await start(t, { dataDir });
  const logs = await second.client.getLogs({ address: ASSET, fromBlock: 0n });
  assert.equal(logs.length, 1);
  assert.equal(
    (await second.client.getTransactionReceipt({ hash: logs[0]?.transactionHash ?? '0x' })).status,
    'success',
  );
  const { timestamp } = await second.client.getBlock();
  assert.ok(Math.abs(Number(timestamp) - Date.now() / 1000) < 60);
});

test('what was persisted survives kill -9 of the chain, and no block number that was seen is used again', {
  skip,
}, async (t) => {
  const dataDir = await newDirectory();
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n });
  await first.persist();
  await first.client.mine({ blocks: 10 });
  const seen = await first.client.getBlockNumber();
  await kill(dataDir, first);

  const second = await start(t, { dataDir });
  assert.equal(await balance(second.client), 5n);
  assert.ok((await second.client.getBlockNumber()) >= seen);
});

test('a damaged state file is put aside for the one before it', { skip }, async (t) => {
  for (const damage of ['missing', 'empty', 'half', 'nonsense']) {
    const dataDir = await newDirectory();
    const file = join(dataDir, 'chain/state.json');
    const first = await start(t, { dataDir });
    await fund(first.client, SOMEBODY, { usdc: 5n });
    await first.persist();
    await first.stop();
    if (damage === 'missing') await rm(file);
    else if (damage === 'half') await truncate(file, Math.floor((await stat(file)).size / 2));
    else await writeFile(file, damage === 'empty' ? '' : 'null');

    const second = await start(t, { dataDir });
    assert.equal(await balance(second.client), 5n, damage);
    await kill(dataDir, second);
    const third = await start(t, { dataDir });
    assert.equal(await balance(third.client), 5n, damage);
    await third.stop();
  }
});

test('with no whole state file left the chain starts anew, and says so', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n });
  await first.stop();
  await writeFile(join(dataDir, 'chain/state.json'), '');
  await writeFile(join(dataDir, 'chain/state.previous.json'), '{');
  const said: string[] = [];
  const second = await start(t, { dataDir, onProgress: (message) => said.push(message) });
  assert.equal(await balance(second.client), 0n);
  assert.ok(said.some((message) => message.includes('starts anew')));
});

/** A process, in a group of its own, that starts the chain, funds somebody and prints the address. */
function startElsewhere(t: Test, dataDir: string): ChildProcess {
  const module = (path: string) => JSON.stringify(fileURLToPath(new URL(`../../src/sandbox/${path}`, import.meta.url)));
  const script = `
    const { startChain } = await import(${module('chain.ts')});
    const { fund } = await import(${module('chain/fund.ts')});
    const { chainClient } = await import(${module('chain/network.ts')});
    const { chain } = await startChain({ dataDir: ${JSON.stringify(dataDir)} });
    await fund(chainClient(chain.rpcUrl), '${SOMEBODY}', { usdc: 5n });
    console.log(chain.rpcUrl);
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  t.teardown(() => killGroup(child));
  return child;
}

function killGroup(child: ChildProcess): void {
  if (child.pid && child.exitCode === null && child.signalCode === null) process.kill(-child.pid, 'SIGKILL');
}

test('a chain outlives the whole process group that started it, is used on, and then stopped', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const child = startElsewhere(t, dataDir);
  const [line] = (await once(child.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  const left = await findAnvil(join(dataDir, 'chain'));
  await assert.rejects(startChain({ dataDir }), /Another process uses the local chain/);
  killGroup(child);
  await once(child, 'exit');

  const chain = await start(t, { dataDir });
  assert.equal(chain.rpcUrl, line.toString().trim());
  assert.deepEqual(await findAnvil(join(dataDir, 'chain')), left);
  assert.equal(await balance(chain.client), 5n);
  await chain.stop();
  assert.equal(await findAnvil(join(dataDir, 'chain')), undefined);
});

/** Starts anvil from what `stop` has saved, as a process does that is killed before it can stop it. */
async function leaveBehind(t: Test, dataDir: string): Promise<{ pid: number; port: number }> {
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n });
  await first.stop();
  const directory = await realpath(join(dataDir, 'chain'));
  return launch(
    {
      binary: findBinary() ?? '',
      directory,
      port: await freePort(),
      stateFile: join(directory, 'state.json'),
      detached: true,
    },
    (port) =>
      chainClient(`http://127.0.0.1:${port}`)
        .getChainId()
        .then(
          () => true,
          () => false,
        ),
  );
}

test('a chain that was left behind moves to another port when one is asked for', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const left = await leaveBehind(t, dataDir);
  await fund(chainClient(`http://127.0.0.1:${left.port}`), SOMEBODY, { usdc: 5n });
  const port = await freePort();
  const chain = await start(t, { dataDir, port });
  assert.equal(chain.rpcUrl, `http://127.0.0.1:${port}`);
  assert.equal(await balance(chain.client), 10n);
});

test('a chain that was left behind and does not answer is replaced', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const left = await leaveBehind(t, dataDir);
  process.kill(left.pid, 'SIGSTOP');
  const chain = await start(t, { dataDir });
  assert.notEqual((await findAnvil(join(dataDir, 'chain')))?.pid, left.pid);
  assert.equal(await balance(chain.client), 5n);
});

test('a transaction gets its two confirmations without another one (R44)', { skip }, async (t) => {
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

test('tests hold transactions back, drop them, and undo blocks', { skip }, async (t) => {
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

test('a port that is taken is named with the way out', { skip }, async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const dataDir = await newDirectory();
  await assert.rejects(startChain({ dataDir, port }), new RegExp(`Port ${port} for the local chain is taken`));
  await start(t, { dataDir });
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

test("it listens on this machine only, and what it writes is its owner's alone", { skip }, async (t) => {
  const dataDir = await newDirectory();
  const { rpcUrl } = await start(t, { dataDir });
  const sockets = (await readFile('/proc/net/tcp', 'utf8')).split('\n').map((line) => line.trim().split(/\s+/));
  const port = Number(new URL(rpcUrl).port).toString(16).toUpperCase().padStart(4, '0');
  const listening = sockets.filter(([, local, , state]) => state === '0A' && local?.endsWith(`:${port}`));
  assert.deepEqual(
    listening.map(([, local]) => local),
    [`0100007F:${port}`],
  );
  assert.equal((await stat(join(dataDir, 'chain'))).mode & 0o777, 0o700);
  assert.ok((await readdir(join(dataDir, 'chain'))).includes('state.json'));
});

test('where anvil does not exist or run, the result says so', async (t) => {
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

test('each caller of persist gets a save that began after the call, and callers share one', async () => {
  const log: string[] = [];
  let finish: () => void = () => undefined;
  const save = shared(async () => {
    log.push('begin');
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    log.push('end');
  });
  const first = save();
  await sleep(0);
  const later = [save(), save(), save()];
  finish();
  await first;
  assert.equal(log[0], 'begin');
  assert.equal(log[1], 'end');
  await sleep(0);
  finish();
  await Promise.all(later);
  assert.deepEqual(log, ['begin', 'end', 'begin', 'end']);

  let broken = true;
  const fragile = shared(async () => {
    if (broken) throw new Error('disk full');
  });
  await assert.rejects(fragile(), /disk full/);
  broken = false;
  await fragile();
});
