import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { test } from 'tap';
import { findAnvil } from '../../src/sandbox/chain/anvil.ts';
import { CHAIN_ID } from '../../src/sandbox/chain/chain-client.ts';
import { testChain } from '../support/chain.ts';
import { startScript } from '../support/child.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';
import { until } from '../support/until.ts';
import { balance, SOMEBODY, start } from './chain-folder.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const READ = { jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] };
const GIFT = { jsonrpc: '2.0', id: 2, method: 'anvil_setBalance', params: [SOMEBODY, '0x5'] };
const FORK = {
  jsonrpc: '2.0',
  id: 3,
  method: 'anvil_reset',
  params: [{ forking: { jsonRpcUrl: 'http://10.0.0.1/' } }],
};

/** Sent as it stands, with headers that fetch sets itself. */
async function send(url: string, body: unknown, headers: Record<string, string> = {}): Promise<IncomingMessage> {
  const sent = request(url, { method: 'POST', headers: { ...JSON_TYPE, ...headers } });
  sent.end(typeof body === 'string' ? body : JSON.stringify(body));
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return response.resume();
}

const { chain, skip } = await testChain();

test("the chain's address accepts no WebSocket and no request from a web page", { skip }, async (t) => {
  const { rpcUrl } = chain;
  for (const url of [rpcUrl, new URL(rpcUrl).origin]) {
    const handshake = request(url, {
      headers: {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      },
    }).end();
    const isOpened = await Promise.race([
      once(handshake, 'upgrade').then(() => true),
      once(handshake, 'response').then(() => false),
    ]);
    handshake.destroy();
    t.equal(isOpened, false, url);
  }
  t.equal((await send(rpcUrl, READ, { origin: 'http://evil.example' })).statusCode, 403);
  t.equal((await send(rpcUrl, READ, { origin: new URL(rpcUrl).origin })).statusCode, 403);
  t.equal((await send(rpcUrl, READ)).statusCode, 200);
});

test('the chain answers only for its own host and secret path', { skip }, async (t) => {
  const { rpcUrl } = chain;
  t.equal((await send(rpcUrl, READ, { host: 'evil.example' })).statusCode, 421);
  const { origin, pathname } = new URL(rpcUrl);
  t.match(pathname, /^\/[\w-]{43}$/);
  for (const path of ['/', '/nowhere', pathname.slice(0, -1), `${pathname}/`, pathname.toUpperCase()])
    t.equal((await send(`${origin}${path}`, READ)).statusCode, 404, path);
});

test("the chain's address allows reads and payments but no control, also in a batch", { skip }, async (t) => {
  const { rpcUrl } = chain;
  const refused = [
    GIFT,
    FORK,
    [READ, GIFT],
    [READ, [GIFT]],
    [],
    [null],
    { ...GIFT, method: ['eth_chainId'] },
    { ...GIFT, method: 'eth_sendTransaction' },
    '{"jsonrpc":"2.0","id":1,"method":"eth_chainId","method":"anvil_setBalance","params":[]}',
    '"eth_chainId"',
  ];
  t.equal((await send(rpcUrl, { ...READ, padding: 'x'.repeat(600_000) })).statusCode, 413);
  for (const body of refused) {
    const { statusCode } = await send(rpcUrl, body);
    t.ok(statusCode === 400 || statusCode === 403, `${statusCode} ${JSON.stringify(body)}`);
  }
  t.equal(await chain.client.getBalance({ address: SOMEBODY }), 0n);
  const answer = await fetch(rpcUrl, { method: 'POST', headers: JSON_TYPE, body: JSON.stringify(GIFT) });
  const { id, error } = (await answer.json()) as { id: number; error: { code: number; message: string } };
  t.strictSame([id, error.code], [2, -32601]);
  t.match(error.message, /^The method anvil_setBalance is not allowed\. .* Nothing was sent to the chain\.$/);
  const batch = await fetch(rpcUrl, { method: 'POST', headers: JSON_TYPE, body: JSON.stringify([READ, READ]) });
  t.equal(batch.status, 200);
  const told = ((await batch.json()) as { result: string }[]).map(({ result }) => Number(result));
  t.strictSame(told, [CHAIN_ID, CHAIN_ID]);
});

test('the chain listens only on its address and on a socket in its private folder', { skip }, async (t) => {
  const { dataDir, socketPath, pid } = chain;
  const own = execFileSync('ss', ['-Hltnp'])
    .toString()
    .split('\n')
    .filter((line) => line.includes(`pid=${pid},`));
  const addresses = own.map((line) => line.trim().split(/\s+/)[3] ?? '');
  t.equal(addresses.length, 1);
  for (const address of addresses)
    await t.rejects(fetch(`http://${address}/`, { method: 'POST', headers: JSON_TYPE, body: JSON.stringify(READ) }));
  t.ok(socketPath.startsWith(join(dataDir, 'chain')));
});

for (const condition of ['answers', 'hangs'] as const) {
  const kept = condition === 'answers' ? 7n : 5n;
  test(`an orphaned chain that ${condition} is ended, and its balances are kept`, { skip }, async (t) => {
    const dataDir = await sandboxFolder(t);
    const imports = {
      startChain: 'src/sandbox/local-chain.ts',
      fund: 'src/sandbox/chain/fund.ts',
      chainClient: 'src/sandbox/chain/chain-client.ts',
    };
    const child = startScript(
      t,
      imports,
      `const { chain } = await startChain({ dataDir: '${dataDir}', blockTime: 0 });
      const client = chainClient(chain.socketPath);
      await fund(client, '${SOMEBODY}', { usdc: 5n });
      await chain.persist();
      await fund(client, '${SOMEBODY}', { usdc: 2n });
      console.log(chain.rpcUrl);
      setInterval(() => {}, 1000);`,
    );
    const [url] = await child.printed(/http:\S+/);
    const left = (await findAnvil(join(dataDir, 'chain'))) as number;
    await child.stop('SIGKILL');
    if (condition === 'hangs') {
      process.kill(left, 'SIGSTOP');
      // A process goes on for a moment after the signal was sent.
      await until(async () => /\) T /.test(await readFile(`/proc/${left}/stat`, 'utf8')));
    }
    const chain = await start(t, { dataDir });
    t.equal(chain.rpcUrl, url);
    t.not(chain.pid, left);
    t.equal(await readFile(`/proc/${left}/cmdline`, 'utf8').catch(() => ''), '', 'it has gone');
    t.equal(await balance(chain.client), kept);
    await chain.stop();
    t.equal(await findAnvil(join(dataDir, 'chain')), undefined);
  });
}
