import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'tap';
import { assertContract } from '../support/contract.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import { exchange, requestBytes } from '../support/raw-http.ts';

test('a request target without a path of this origin is 400 before routing', async (t) => {
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
    t.strictSame([answer?.status, more.length], [status, 0], what);
    if (!answer || status !== 400) continue;
    assertContract(method ?? 'GET', '/nowhere', answer);
    if (method !== 'HEAD') t.equal(JSON.parse(answer.bytes.toString()).error.code, 'INVALID_REQUEST', what);
  }
});

const junk = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`x-junk-${i}`, 'x']));
const forwarded = (address: string, junkHeaders = 0): Call => ({
  headers: { ...junk(junkHeaders), 'x-forwarded-for': address },
});

test('R39: X-Forwarded-For counts even after thousands of other headers', async (t) => {
  const gateway = await startGateway(t, { TRUST_PROXY: '127.0.0.0/8', EDGE_RATE_LIMIT_MAX: '1' });
  for (const [address, count] of [
    ['192.0.2.1', 200],
    ['192.0.2.2', 2_500],
  ] as const) {
    t.equal((await gateway.call('/', forwarded(address, count))).status, 200);
    t.equal((await gateway.call('/', forwarded(address, count))).status, 429, 'counted as that client');
  }
  t.equal((await gateway.call('/')).status, 200, 'the proxy has its own minute yet');
});

test('a connection serves 100 requests, and a client that sends more is disconnected', async (t) => {
  const { url } = await startGateway(t);
  const open = () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1').setEncoding('latin1');
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    return socket;
  };
  const patient = open();
  for (let count = 1; count <= 100; count += 1) {
    patient.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    const [answer] = (await once(patient, 'data')) as [string];
    t.equal(/^connection: close/im.test(answer), count === 100, `${count}`);
  }
  const greedy = open();
  greedy.resume().write('GET / HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(101));
  await once(greedy, 'close');
});
