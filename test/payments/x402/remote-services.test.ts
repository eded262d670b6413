import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { inspect } from 'node:util';
import { jwtVerify } from 'jose';
import { type Test, test } from 'tap';
import { numberToHex, pad, type RpcTransactionReceipt } from 'viem';
import { ChainNode } from '../../../src/payments/x402/chain-node.ts';
import { Facilitator, FacilitatorError } from '../../../src/payments/x402/facilitator.ts';
import { RpcError } from '../../../src/payments/x402/rpc.ts';
import { AUTHORIZATION_USED, proofIn, TRANSFER } from '../../../src/payments/x402/transfer-proof.ts';
import { serve } from '../../support/listening.ts';

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
/** Some send an error of null beside a result. */
const good: Answer = (method, response) => json({ result: GOOD[method] ?? null, error: null })(method, response);

/** A node whose address holds credentials and a key. */
async function startNode(t: Test, answer: { now: Answer }) {
  const requests: { readonly method: string; readonly incoming: IncomingMessage }[] = [];
  const served = await serve(t, async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const { method } = JSON.parse(Buffer.concat(chunks).toString());
    requests.push({ method, incoming });
    answer.now(method, response);
  });
  const { host } = new URL(served);
  const url = `http://reader:hunter2%21@${host}/key-in-the-path?x=1`;
  const asset = { network: 'eip155:8453', chainId: 8453, address: ADDRESS, name: 'USD Coin', version: '2' } as const;
  const node = new ChainNode(url, asset);
  t.teardown(() => node.close());
  return { node, requests };
}

test('a node gets credentials in a header, one chain check and reused connections', async (t) => {
  const { node, requests } = await startNode(t, { now: good });
  t.strictSame([await node.head(), await node.balanceOf(ADDRESS), await node.hasCode(ADDRESS)], [16n, 7n, false]);
  t.equal(await node.head(), 16n);
  const methods = ['eth_chainId', 'eth_blockNumber', 'eth_call', 'eth_getCode', 'eth_blockNumber'];
  t.strictSame(
    requests.map(({ method }) => method),
    methods,
  );
  for (const { incoming } of requests) {
    t.equal(incoming.headers.authorization, `Basic ${Buffer.from('reader:hunter2!').toString('base64')}`);
    t.equal(incoming.url, '/key-in-the-path?x=1');
  }
  t.ok(new Set(requests.map(({ incoming }) => incoming.socket)).size < requests.length);
});

test('R25: only events of the token contract prove a payment', async (t) => {
  const receiptOf = (address: string) => ({
    status: '0x1',
    transactionHash: HASH,
    blockNumber: '0x1',
    blockHash: HASH,
    logs: [
      { address, topics: [AUTHORIZATION_USED, pad(CLAIM.payer), CLAIM.nonce], data: '0x', logIndex: '0x0' },
      {
        address,
        topics: [TRANSFER, pad(CLAIM.payer), pad(CLAIM.payTo)],
        data: numberToHex(CLAIM.amount, { size: 32 }),
        logIndex: '0x1',
      },
    ],
  });
  const proofFrom = (address: string) => proofIn(receiptOf(address) as RpcTransactionReceipt, ADDRESS, CLAIM);
  t.equal(proofFrom(ADDRESS)?.transaction, HASH);
  t.equal(proofFrom(`0x${'ef'.repeat(20)}`), undefined);
});

const BAD: readonly [name: string, answer: Answer][] = [
  ['an error', json({ error: { code: -32000, message: 'words of the node' } })],
  ['an error that reverts', json({ error: { code: 3, message: 'words of the node', data: '0x08c379a0' } })],
  ['a retryable error', json({ error: { code: -32005, message: 'words of the node' } })],
  ['a status', (_, response) => response.writeHead(503, 'words of the node').end('words of the node')],
  ['invalid JSON', (_, response) => response.writeHead(200).end('words of the node')],
  ['null', (_, response) => response.writeHead(200).end('"words of the node"')],
  ['null', (_, response) => response.writeHead(200).end('null')],
  ['true', json({ result: true })],
  ['a number', json({ result: 12 })],
  ['a list', json({ result: [] })],
  ['nothing', (_, response) => response.destroy()],
  ['invalid HTTP', (_, response) => response.socket?.end('words of the node\r\n\r\n')],
  ['a result of another type', json({ result: 'words of the node' })],
  ['an object', json({ result: { number: 'words of the node' } })],
  [
    'more than 8 MB',
    (method, response) => response.end(JSON.stringify({ result: GOOD[method] ?? null }) + ' '.repeat(9 << 20)),
  ],
];

test('a node that answers badly is asked once, and its text is hidden', async (t) => {
  const answer = { now: good };
  const { node, requests } = await startNode(t, answer);
  await node.head();
  for (const [name, bad] of BAD) {
    answer.now = bad;
    for (const ask of [
      () => node.head(),
      () => node.balanceOf(ADDRESS),
      () => node.hasCode(ADDRESS),
      () => node.prove(CLAIM, HASH),
    ]) {
      requests.length = 0;
      const error = await ask().then(
        (value) => assert.fail(`it took ${value} for an answer`),
        (thrown) => thrown,
      );
      t.ok(error instanceof RpcError, `${name}: ${inspect(error)}`);
      const told = inspect(error, { depth: Number.POSITIVE_INFINITY, showHidden: true });
      for (const secret of SECRETS) t.ok(!told.includes(secret), told);
      t.equal(requests.length, 1, name);
    }
  }
});

test('an unknown block and a block with malformed fields are RpcErrors', async (t) => {
  const block = { number: '0x10', timestamp: '0x10', gasUsed: 'words of the node', transactions: [] };
  for (const result of [block, null, { number: `0x${'f'.repeat(16)}`, timestamp: '0x1' }]) {
    const { node } = await startNode(t, {
      now: (method, response) => {
        const results = { ...GOOD, eth_getLogs: [], eth_getBlockByNumber: result };
        json({ result: results[method as keyof typeof results] })(method, response);
      },
    });
    const error = await node
      .find(CLAIM, { headBlock: 1n, transaction: undefined, isAlone: true })
      .catch((thrown) => thrown);
    t.ok(error instanceof RpcError, inspect(error));
    t.ok(!inspect(error, { depth: Number.POSITIVE_INFINITY }).includes('words of the node'));
  }
});

test('block numbers too large for the database are RpcErrors', async (t) => {
  const answer = { now: good };
  const { node } = await startNode(t, answer);
  await node.hasCode(ADDRESS);
  answer.now = json({ result: `0x${'f'.repeat(16)}` });
  await assert.rejects(node.head(), RpcError);
});

const PAYER = `0x${'ab'.repeat(20)}`;
const TRANSACTION = `0x${'cd'.repeat(32)}`;
const PAYMENT = {
  envelope: {
    authorization: { from: PAYER, value: 1n, validAfter: 0n, validBefore: 1n },
    signature: '0x',
    identifier: 'i',
  },
  offer: {},
  resource: { resource: {}, extensions: {} },
} as unknown as Parameters<Facilitator['verify']>[0];

/** A facilitator that answers every call with this. */
async function startFacilitator(t: Test, status: number, body: string, onRefused?: () => void): Promise<Facilitator> {
  const url = await serve(t, (request, response) => {
    request.resume().on('end', () => response.writeHead(status).end(body));
  });
  const facilitator = new Facilitator(url, undefined, 30_000, onRefused);
  t.teardown(() => facilitator.close());
  return facilitator;
}

const KEYS = [
  ['EdDSA', generateKeyPairSync('ed25519')],
  ['ES256', generateKeyPairSync('ec', { namedCurve: 'P-256' })],
] as const;

for (const [alg, { privateKey, publicKey }] of KEYS) {
  test(`a facilitator key signs a token for each request by ${alg}`, async (t) => {
    const tokens: string[] = [];
    const url = await serve(t, (request, response) => {
      tokens.push(String(request.headers.authorization).replace(/^Bearer /, ''));
      request.resume().on('end', () => response.end(JSON.stringify({ isValid: true, success: false })));
    });
    const { host } = new URL(url);
    const facilitator = new Facilitator(`${url}/platform/v2/x402`, { id: 'key-1', privateKey }, 30_000);
    t.teardown(() => facilitator.close());
    await facilitator.verify(PAYMENT);
    await facilitator.settle(PAYMENT);
    const read = await Promise.all(
      tokens.map((token) => jwtVerify(token, publicKey, { issuer: 'cdp', subject: 'key-1' })),
    );
    t.strictSame(
      read.map(({ payload }) => payload.uris),
      ['verify', 'settle'].map((action) => [`POST ${host}/platform/v2/x402/${action}`]),
    );
    for (const { payload, protectedHeader } of read) {
      t.strictSame([protectedHeader.alg, protectedHeader.kid, protectedHeader.typ], [alg, 'key-1', 'JWT']);
      t.equal(Number(payload.exp) - Number(payload.nbf), 120);
    }
    t.not(read[0]?.protectedHeader.nonce, read[1]?.protectedHeader.nonce);
  });
}

test("the facilitator's response may have 64 KiB and no more", async (t) => {
  const valid = JSON.stringify({ isValid: true, payer: PAYER });
  const ample = await startFacilitator(t, 200, valid.padEnd(65_536));
  t.strictSame(await ample.verify(PAYMENT), { valid: true });
  const excessive = await startFacilitator(t, 200, valid.padEnd(65_537));
  await assert.rejects(excessive.verify(PAYMENT), FacilitatorError);
});

const VALID: [number, object][] = [
  [200, { isValid: true, payer: PAYER }],
  [200, { isValid: true, payer: PAYER.toUpperCase().replace('0X', '0x') }],
  [200, { isValid: true, payer: '' }],
  [200, { isValid: true, payer: PAYER, invalidReason: null, invalidMessage: null, extra: null, error: null }],
  [202, { isValid: true }],
  [299, { isValid: true }],
];

test('R25: any 2xx of verify counts as 200, and an empty payer as none', async (t) => {
  for (const [status, body] of VALID) {
    const facilitator = await startFacilitator(t, status, JSON.stringify(body));
    t.strictSame(await facilitator.verify(PAYMENT), { valid: true }, `${status} ${JSON.stringify(body)}`);
  }
});

test('R24: verify for another payer or with another status is a FacilitatorError', async (t) => {
  for (const [status, body] of [
    [200, { isValid: true, payer: TRANSACTION.slice(0, 42) }],
    [200, { isValid: 'true' }],
    [304, { isValid: true }],
    [400, { isValid: true }],
    [503, { isValid: false, invalidReason: 'invalid_exact_evm_signature' }],
  ] as [number, object][]) {
    const facilitator = await startFacilitator(t, status, JSON.stringify(body));
    await assert.rejects(facilitator.verify(PAYMENT), FacilitatorError, `${status} ${JSON.stringify(body)}`);
  }
});

test("a facilitator's refusal of the request itself names its reason", async (t) => {
  const minimum = { errorType: 'invalid_request', errorMessage: 'amount is below the minimum' };
  for (const status of [400, 413, 422]) {
    const facilitator = await startFacilitator(t, status, JSON.stringify(minimum));
    t.strictSame(await facilitator.verify(PAYMENT), {
      valid: false,
      reason: 'invalid_request',
      detail: `status ${status} invalid_request: amount is below the minimum`,
      isOfRequest: true,
    });
  }
  const html = await startFacilitator(t, 400, '<html>');
  const { reason } = (await html.verify(PAYMENT)) as { reason?: string };
  t.equal(reason, 'invalid_payment');
});

test("what the facilitator wrote in CDP's form reaches the log", async (t) => {
  const body = { errorType: 'unauthorized', errorMessage: 'words of the facilitator', errorReason: null };
  const facilitator = await startFacilitator(t, 401, JSON.stringify(body));
  await assert.rejects(facilitator.verify(PAYMENT), (error: FacilitatorError) => {
    assert.ok(!error.message.includes('words'));
    return error.detail === 'status 401 unauthorized: words of the facilitator';
  });
  const { detail } = await facilitator.settle(PAYMENT);
  t.equal(detail, 'status 401 unauthorized: words of the facilitator');
});

const REFUSED = { success: false, errorReason: 'insufficient_funds', transaction: '' };

test('R23: a 2xx or 4xx with a reason that excludes a broadcast refuses a settle', async (t) => {
  for (const status of [200, 201, 202, 400, 402, 422]) {
    const facilitator = await startFacilitator(t, status, JSON.stringify(REFUSED));
    const answer = await facilitator.settle(PAYMENT);
    t.strictSame([answer.outcome, 'reason' in answer && answer.reason], ['refused', REFUSED.errorReason]);
  }
});

test('a refused credential is told although members of a result are null', async (t) => {
  let told = 0;
  for (const status of [401, 403]) {
    const body = { isValid: null, success: null, payer: null, error: 'unauthorized' };
    const facilitator = await startFacilitator(t, status, JSON.stringify(body), () => {
      told += 1;
    });
    await assert.rejects(facilitator.verify(PAYMENT), FacilitatorError);
    t.equal((await facilitator.settle(PAYMENT)).outcome, 'open');
  }
  t.equal(told, 4);
});

const OPEN: [string, number, unknown, string | undefined][] = [
  ['success', 200, { success: true, transaction: TRANSACTION }, TRANSACTION],
  [
    'success with members of null',
    200,
    { success: true, transaction: TRANSACTION, errorReason: null, errorMessage: null, payer: null, network: null },
    TRANSACTION,
  ],
  ['a null beside the older form', 200, { success: true, transaction: null, txHash: TRANSACTION }, TRANSACTION],
  ['success with 201', 201, { success: true, transaction: TRANSACTION }, TRANSACTION],
  ['success with 202', 202, { success: true, transaction: TRANSACTION }, TRANSACTION],
  ['a hash in upper case', 200, { success: true, transaction: `0x${TRANSACTION.slice(2).toUpperCase()}` }, TRANSACTION],
  ['a hash without 0x', 200, { success: true, transaction: TRANSACTION.slice(2) }, TRANSACTION],
  ['the older form', 200, { success: true, txHash: TRANSACTION }, TRANSACTION],
  ['the older form beside the newer one', 200, { success: true, transaction: '', txHash: TRANSACTION }, TRANSACTION],
  [
    'a pending settlement',
    200,
    { success: false, errorReason: 'settlement_pending', transaction: TRANSACTION },
    TRANSACTION,
  ],
  ['a pending settlement with 202', 202, { status: 'pending', transaction: TRANSACTION }, TRANSACTION],
  ['a refusal that names a transaction', 200, { ...REFUSED, transaction: TRANSACTION }, TRANSACTION],
  ['a refusal that names one in the older form', 200, { ...REFUSED, txHash: TRANSACTION }, TRANSACTION],
  ['an error that names a transaction', 500, { error: 'timeout', transaction: TRANSACTION }, TRANSACTION],
  ['success without a transaction', 200, { success: true }, undefined],
  ['success with something else', 200, { success: true, transaction: { hash: TRANSACTION } }, undefined],
  ['success with a short hash', 200, { success: true, transaction: TRANSACTION.slice(0, 60) }, undefined],
  ['a reason that excludes nothing', 200, { ...REFUSED, errorReason: 'nonce_already_used' }, undefined],
  ['no reason', 400, { success: false }, undefined],
  ['a refusal with 500', 500, REFUSED, undefined],
  ['an empty answer', 204, '', undefined],
  ['a redirect', 307, '', undefined],
];

test('R25: any other settle response leaves the outcome open and keeps its transaction', async (t) => {
  for (const [name, status, body, transaction] of OPEN) {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const answer = await (await startFacilitator(t, status, text)).settle(PAYMENT);
    t.strictSame(
      [answer.outcome, 'transaction' in answer ? answer.transaction : undefined],
      ['open', transaction],
      name,
    );
  }
});
