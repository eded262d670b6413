import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import Fastify from 'fastify';
import { test } from 'tap';
import { EdgeLimiter } from '../../src/http/edge-limiter.ts';
import { EdgeMinutes } from '../../src/http/edge-minutes.ts';
import type { Slot } from '../../src/limits/slot.ts';
import { startGateway } from '../support/gateway.ts';

/** An edge with nothing behind it: what it says to a request from an address at a time in milliseconds. */
async function startEdge(max: number, maxClients?: number) {
  const clock = { now: 0 };
  const minutes = new EdgeMinutes(maxClients, () => clock.now);
  const app = Fastify();
  const limiter = await EdgeLimiter.on(app, max, minutes);
  app.get('/', (request) => limiter.take(request));
  const take = async (remoteAddress: string, now: number): Promise<Slot> => {
    clock.now = now;
    return (await app.inject({ url: '/', remoteAddress })).json();
  };
  return { take, minutes };
}

test("a client's minute starts with its first request, and ends exactly 60 seconds later", async () => {
  const limiter = await startEdge(2);
  const slot = { scope: 'edge', limit: 2, windowSeconds: 60 };
  assert.deepEqual(await limiter.take('192.0.2.1', 1000), { ...slot, allowed: true, remaining: 1, resetSeconds: 60 });
  assert.deepEqual(await limiter.take('192.0.2.1', 1250), { ...slot, allowed: true, remaining: 0, resetSeconds: 60 });
  assert.deepEqual(await limiter.take('192.0.2.1', 11_500), {
    ...slot,
    allowed: false,
    remaining: 0,
    resetSeconds: 50,
  });
  assert.equal((await limiter.take('192.0.2.2', 11_500)).allowed, true);
  assert.deepEqual(await limiter.take('192.0.2.1', 60_999), { ...slot, allowed: false, remaining: 0, resetSeconds: 1 });
  assert.deepEqual(await limiter.take('192.0.2.1', 61_000), { ...slot, allowed: true, remaining: 1, resetSeconds: 60 });
});

test('R13: IPv6 addresses of one /64 count together', async () => {
  const limiter = await startEdge(2);
  assert.equal((await limiter.take('2001:db8::1', 0)).allowed, true);
  assert.equal((await limiter.take('2001:db8::2', 0)).allowed, true);
  assert.equal((await limiter.take('2001:db8::3', 0)).allowed, false);
  assert.equal((await limiter.take('2001:db8:0:1::3', 0)).allowed, true);
});

test('minutes that have ended are forgotten, and no flood of addresses takes more than its share of memory', async () => {
  const limiter = await startEdge(1, 1000);
  for (let host = 0; host < 3000; host += 1) await limiter.take(`10.0.${host >> 8}.${host & 255}`, host);
  assert.equal(limiter.minutes.size, 1000);
  assert.equal((await limiter.take('10.0.11.183', 3000)).allowed, false, 'the latest client is still counted');
  await limiter.take('192.0.2.1', 62_500);
  assert.equal(limiter.minutes.size, 500);
  await limiter.take('192.0.2.1', 63_000);
  assert.equal(limiter.minutes.size, 1);
});

test('R39: the edge refuses with the declared error and headers, whatever is asked for, and before it reads a body', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '4' });
  assert.equal((await gateway.call('/')).status, 200);
  assert.equal((await gateway.call('/nowhere')).status, 404);
  assert.equal((await gateway.call('/tts', { method: 'DELETE' })).status, 405);
  const last = await gateway.call('/tts/models');
  assert.equal(last.status, 200);
  assert.equal(last.headers.get('x-ratelimit-scope'), null, 'the edge shows itself only when it refuses');

  for (const [path, call] of [
    ['/', {}],
    ['/', { method: 'HEAD' }],
    ['/nowhere', {}],
    ['/tts', { method: 'DELETE' }],
    ['/top-up', { headers: { accept: 'text/html' } }],
    ['/tts', { method: 'POST', json: { text: 'Hello' } }],
    ['/tts', { method: 'POST', body: 'not JSON', headers: { 'content-type': 'application/json' } }],
    ['/%zz', {}],
  ] as const) {
    const reply = await gateway.call(path, call);
    assert.equal(reply.status, 429, path);
    const retryAfter = Number(reply.headers.get('retry-after'));
    assert.ok(retryAfter > 0 && retryAfter <= 60, `Retry-After ${retryAfter}`);
    assert.deepEqual(
      ['limit', 'policy', 'remaining', 'reset', 'scope'].map((name) => reply.headers.get(`x-ratelimit-${name}`)),
      ['4', '4;w=60', '0', String(retryAfter), 'edge'],
    );
    if (path === '/' && 'method' in call) continue;
    assert.equal(reply.json.error.code, 'RATE_LIMITED');
    assert.deepEqual(reply.json.error.details, {
      scope: 'edge',
      limit: 4,
      windowSeconds: 60,
      retryAfterSeconds: retryAfter,
    });
  }
});

test('a refused request is answered while its body is still to come', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '1' });
  await gateway.call('/');
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
  await once(socket, 'connect');
  socket.write('POST /tts HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 50000\r\n\r\n{');
  const [head] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  assert.match(head.toString(), /^HTTP\/1\.1 429 /);
});

test('preflights are not counted, other OPTIONS requests are', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '1' });
  const headers = { origin: 'https://page.example', 'access-control-request-method': 'POST' };
  for (let count = 0; count < 3; count += 1) {
    assert.equal((await gateway.call('/tts', { method: 'OPTIONS', headers })).status, 204);
  }
  assert.equal((await gateway.call('/tts', { method: 'OPTIONS' })).status, 204);
  assert.equal((await gateway.call('/tts', { method: 'OPTIONS' })).status, 429);
  assert.equal((await gateway.call('/tts', { method: 'OPTIONS', headers })).status, 204);
});

test('a request that the HTTP parser takes but the router refuses counts too', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '2' });
  assert.equal((await gateway.call('/%zz')).status, 400);
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
  socket.end('GET / HTTP/1.1\r\nconnection: close\r\n\r\n');
  assert.match(await text(socket), /^HTTP\/1\.1 400 /);
  assert.equal((await gateway.call('/')).status, 429);
});

test('R39: without TRUST_PROXY an X-Forwarded-For changes nothing', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '2' });
  const from = async (forwarded: string) =>
    (await gateway.call('/', { headers: { 'x-forwarded-for': forwarded } })).status;
  assert.deepEqual([await from('192.0.2.1'), await from('192.0.2.2'), await from('192.0.2.3')], [200, 200, 429]);
});

test('R39: behind a trusted proxy the address is the one that the proxy adds, not what a client claims', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '2', TRUST_PROXY: '127.0.0.0/8, 10.1.0.0/16' });
  const from = async (forwarded: string) =>
    (await gateway.call('/', { headers: { 'x-forwarded-for': forwarded } })).status;
  assert.deepEqual(
    [await from('198.51.100.1, 192.0.2.1'), await from('198.51.100.2, 192.0.2.1'), await from('192.0.2.1, 10.1.2.3')],
    [200, 200, 429],
  );
  assert.equal(await from('192.0.2.2'), 200, 'another client has a minute of its own');
  assert.deepEqual(
    [await from('2001:db8::1'), await from('2001:db8::ffff'), await from('2001:db8:0:0:1::')],
    [200, 200, 429],
  );
  assert.deepEqual([await from('nonsense'), await from('more nonsense'), await from('_hidden')], [200, 200, 429]);
});

test('R39: a proxy that is not in TRUST_PROXY is a client like any other', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '1', TRUST_PROXY: '10.1.0.0/16' });
  const from = async (forwarded: string) =>
    (await gateway.call('/', { headers: { 'x-forwarded-for': forwarded } })).status;
  assert.deepEqual([await from('192.0.2.1'), await from('192.0.2.2')], [200, 429]);
});
