import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, realpath } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Test, test } from 'tap';
import { chainSocket, findAnvil, findBinary, launch } from '../../src/sandbox/chain/anvil.ts';
import { chainClient } from '../../src/sandbox/chain/chain-client.ts';
import { fund } from '../../src/sandbox/chain/fund.ts';
import { startChain } from '../../src/sandbox/local-chain.ts';
import { until } from '../support/until.ts';
import { balance, newDirectory, SOMEBODY, skip, start } from './chain-folder.ts';

/** A process, in a group of its own, that starts the chain, funds somebody and prints the address. */
function startElsewhere(t: Test, dataDir: string): ChildProcess {
  const module = (path: string) => JSON.stringify(fileURLToPath(new URL(`../../src/sandbox/${path}`, import.meta.url)));
  const script = `
    const { startChain } = await import(${module('local-chain.ts')});
    const { fund } = await import(${module('chain/fund.ts')});
    const { chainClient } = await import(${module('chain/chain-client.ts')});
    const { chain } = await startChain({ dataDir: ${JSON.stringify(dataDir)} });
    await fund(chainClient(chain.socketPath), '${SOMEBODY}', { usdc: 5n });
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
async function leaveBehind(t: Test, dataDir: string): Promise<{ pid: number }> {
  const first = await start(t, { dataDir });
  await fund(first.client, SOMEBODY, { usdc: 5n });
  await first.stop();
  const directory = await realpath(join(dataDir, 'chain'));
  return launch(
    { binary: findBinary() ?? '', directory, stateFile: join(directory, 'state.json'), detached: true },
    (socketPath) =>
      chainClient(socketPath)
        .getChainId()
        .then(
          () => true,
          () => false,
        ),
  );
}

test('a chain that was left behind is used on at another port when one is asked for', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const left = await leaveBehind(t, dataDir);
  const directory = await realpath(join(dataDir, 'chain'));
  await fund(chainClient(await chainSocket(directory)), SOMEBODY, { usdc: 5n });
  const port = await freePort();
  const chain = await start(t, { dataDir, port });
  assert.equal(new URL(chain.rpcUrl).port, String(port));
  assert.deepEqual(await findAnvil(directory), left);
  assert.equal(await balance(chain.client), 10n);
});

test('a chain that was left behind and does not answer is replaced', { skip }, async (t) => {
  const dataDir = await newDirectory();
  const left = await leaveBehind(t, dataDir);
  process.kill(left.pid, 'SIGSTOP');
  // A process goes on for a moment after the signal was sent.
  await until(async () => /\) T /.test(await readFile(`/proc/${left.pid}/stat`, 'utf8')));
  const chain = await start(t, { dataDir });
  assert.notEqual((await findAnvil(join(dataDir, 'chain')))?.pid, left.pid);
  assert.equal(await balance(chain.client), 5n);
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
