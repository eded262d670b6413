import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { inspect } from 'node:util';
import { type Test, test } from 'tap';
import { ChainNode } from '../../src/x402/chain-node.ts';
import { RpcError } from '../../src/x402/rpc.ts';

const ADDRESS = `0x${'cd'.repeat(20)}` as const;
const HASH = `0x${'ab'.repeat(32)}` as const;
const CLAIM = { payer: ADDRESS, nonce: HASH, payTo: ADDRESS, amount: 1n, validBefore: 1n };
const SECRETS = ['reader', 'hunter2', 'key-in-the-path', 'Basic', 'words of the node', '127.0.0.1'];

type Answer = (method: string, response: ServerResponse) => void;

const json =
  (body: object): Answer =>
  (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', ...body }));
  };

const GOOD: Readonly<Record<string, unknown>> = {
  eth_chainId: '0x2105',
  eth_blockNumber: '0x10',
  eth_call: `0x${'7'.padStart(64, '0')}`,
  eth_getCode: '0x',
};
const good: Answer = (method, response) => json({ result: GOOD[method] ?? null })(method, response);

/** A node whose address holds credentials and a key. */
async function startNode(t: Test, answer: { now: Answer }) {
  const requests: { readonly method: string; readonly incoming: IncomingMessage }[] = [];
  const server = createServer(async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const { method } = JSON.parse(Buffer.concat(chunks).toString());
    requests.push({ method, incoming });
    answer.now(method, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const url = `http://reader:hunter2%21@127.0.0.1:${port}/key-in-the-path?x=1`;
  const asset = { network: 'eip155:8453', chainId: 8453, address: ADDRESS, name: 'USD Coin', version: '2' } as const;
  const node = new ChainNode(url, asset);
  t.teardown(async () => {
    server.close();
    server.closeAllConnections();
    await node.close();
  });
  return { node, requests };
}

test('credentials are sent as a header, the chain is asked for once, and connections are used again', async (t) => {
  const { node, requests } = await startNode(t, { now: good });
  assert.deepEqual([await node.head(), await node.balanceOf(ADDRESS), await node.hasCode(ADDRESS)], [16n, 7n, false]);
  assert.equal(await node.head(), 16n);
  const methods = ['eth_chainId', 'eth_blockNumber', 'eth_call', 'eth_getCode', 'eth_blockNumber'];
  assert.deepEqual(
    requests.map(({ method }) => method),
    methods,
  );
  for (const { incoming } of requests) {
    assert.equal(incoming.headers.authorization, `Basic ${Buffer.from('reader:hunter2!').toString('base64')}`);
    assert.equal(incoming.url, '/key-in-the-path?x=1');
  }
  assert.ok(new Set(requests.map(({ incoming }) => incoming.socket)).size < requests.length);
});

const BAD: readonly [name: string, answer: Answer][] = [
  ['an error', json({ error: { code: -32000, message: 'words of the node' } })],
  ['an error that reverts', json({ error: { code: 3, message: 'words of the node', data: '0x08c379a0' } })],
  ['an error to be tried again', json({ error: { code: -32005, message: 'words of the node' } })],
  ['a status', (_, response) => response.writeHead(503, 'words of the node').end('words of the node')],
  ['no JSON', (_, response) => response.writeHead(200).end('words of the node')],
  ['no object', (_, response) => response.writeHead(200).end('"words of the node"')],
  ['null', (_, response) => response.writeHead(200).end('null')],
  ['nothing', (_, response) => response.destroy()],
  ['no HTTP', (_, response) => response.socket?.end('words of the node\r\n\r\n')],
  ['a result of another kind', json({ result: 'words of the node' })],
  ['an object', json({ result: { number: 'words of the node' } })],
  [
    'more than 8 MB',
    (method, response) => response.end(JSON.stringify({ result: GOOD[method] ?? null }) + ' '.repeat(9 << 20)),
  ],
];

for (const [name, bad] of BAD) {
  test(`a node that answers with ${name} is asked once, and the error tells neither its address nor its words`, async (t) => {
    const answer = { now: good };
    const { node, requests } = await startNode(t, answer);
    await node.head();
    answer.now = bad;
    const questions = [
      () => node.head(),
      () => node.balanceOf(ADDRESS),
      () => node.hasCode(ADDRESS),
      () => node.prove(CLAIM, HASH),
    ];
    for (const ask of questions) {
      requests.length = 0;
      const error = await ask().then(
        (value) => assert.fail(`it took ${value} for an answer`),
        (thrown) => thrown,
      );
      assert.ok(error instanceof RpcError, inspect(error));
      const told = inspect(error, { depth: Number.POSITIVE_INFINITY, showHidden: true });
      for (const secret of SECRETS) assert.ok(!told.includes(secret), told);
      assert.equal(requests.length, 1);
    }
  });
}

test('a block whose other fields are nonsense, and one that is unknown, are RpcErrors', async (t) => {
  const block = { number: '0x10', timestamp: '0x10', gasUsed: 'words of the node', transactions: [] };
  for (const result of [block, null, { number: `0x${'f'.repeat(16)}`, timestamp: '0x1' }]) {
    const { node } = await startNode(t, {
      now: (method, response) => {
        const results = { ...GOOD, eth_getLogs: [], eth_getBlockByNumber: result };
        json({ result: results[method as keyof typeof results] })(method, response);
      },
    });
    const error = await node.find(CLAIM, 1n, true).catch((thrown) => thrown);
    assert.ok(error instanceof RpcError, inspect(error));
    assert.ok(!inspect(error, { depth: Number.POSITIVE_INFINITY }).includes('words of the node'));
  }
});

test('numbers of blocks past what the database holds are RpcErrors', async (t) => {
  const { node } = await startNode(t, {
    now: (method, response) => {
      json({ result: method === 'eth_blockNumber' ? `0x${'f'.repeat(16)}` : GOOD[method] })(method, response);
    },
  });
  await assert.rejects(node.head(), RpcError);
});
