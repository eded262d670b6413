import assert from 'node:assert/strict';
import { test } from 'tap';
import { assertContract } from '../support/contract.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import { exchange, requestBytes } from '../support/raw-http.ts';

test('a request target that names no path of this origin is 400, before it is routed', async (t) => {
  const gateway = await startGateway(t);
  for (const [target, status, method] of [
    ['*tts/models', 400],
    ['*', 400],
    ['*', 400, 'HEAD'],
    ['*tts', 400, 'OPTIONS'],
    ['*', 204, 'OPTIONS'],
    ['tts/models', 400],
    ['?text=a', 400],
    ['a.example:80', 400],
    ['ftp://a/tts/models', 400],
    ['file:///tts/models', 400],
    ['httpx://a/tts/models', 400],
    ['http:///tts/models', 400],
    ['http://a/tts/models', 200],
    ['HTTPS://a/tts/models', 200],
    ['http://a?text=/tts/models', 200],
    ['http://a', 200],
    ['/tts/models', 200],
  ] as const) {
    const what = `${method ?? 'GET'} ${target}`;
    const [answer, ...more] = await exchange(
      gateway.url,
      requestBytes(target, { method, headers: { connection: 'close' } } as Call),
      [method ?? 'GET'],
    );
    assert.deepEqual([answer?.status, more.length], [status, 0], what);
    if (!answer || status !== 400) continue;
    assertContract(method ?? 'GET', '/nowhere', answer);
    if (method !== 'HEAD') assert.equal(JSON.parse(answer.bytes.toString()).error.code, 'INVALID_REQUEST', what);
  }
});

const junk = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`x-junk-${i}`, 'x']));
const forwarded = (address: string, junkHeaders = 0): Call => ({
  headers: { ...junk(junkHeaders), 'x-forwarded-for': address },
});
const TOO_MANY = 2000;

test('R39: headers too many to read are 431 on any path, and X-Forwarded-For is never among those left out', async (t) => {
  const gateway = await startGateway(t, { TRUST_PROXY: '127.0.0.0/8', EDGE_RATE_LIMIT_MAX: '1' });
  for (const path of ['/', '/nowhere', '/%zz', '/tts']) {
    for (let count = 0; count < 3; count += 1) {
      const reply = await gateway.call(path, forwarded('192.0.2.1', TOO_MANY));
      assert.deepEqual([reply.status, reply.json.error.code], [431, 'REQUEST_TOO_LARGE'], path);
      assert.equal(reply.json.error.details.maximum, 200);
      assert.equal(reply.headers.get('connection'), 'close');
    }
  }
  assert.equal((await gateway.call('/')).status, 200, 'the proxy has its own minute yet');
  // With host, connection and x-forwarded-for, 197 more make 200.
  assert.equal((await gateway.call('/', forwarded('192.0.2.2', 197))).status, 200);
  assert.equal((await gateway.call('/', forwarded('192.0.2.2', 197))).status, 429, 'counted as that client');
  assert.equal((await gateway.call('/', forwarded('192.0.2.3', 198))).status, 431);
});
