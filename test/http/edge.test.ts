import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import Fastify from 'fastify';
import { type Test, test } from 'tap';
import { routes } from '../../src/contract/routes.ts';
import { EdgeLimiter, EdgeMinutes } from '../../src/http/plugins/edge-limiter.ts';
import { addressKey } from '../../src/payments/limits/address-key.ts';
import type { Slot } from '../../src/payments/limits/rolling-window.ts';
import { assertContract } from '../support/contract.ts';
import { type Call, type Gateway, startGateway } from '../support/gateway.ts';
import { exchange, type RawAnswer } from '../support/raw-http.ts';

let shared: Promise<Gateway> | undefined;
/** One gateway for the whole file; it ends with the first test's hooks only when the process does. */
const gateway = (t: Test) => (shared ??= startGateway(t));

/** Sends bytes as they are and reads the answer. */
const raw = async (url: string, bytes: string, method = 'GET') =>
  (await exchange(url, bytes, [method]))[0] as RawAnswer;

test('the edge answers every request as the contract declares', async (t) => {
  const { url, call } = await gateway(t);

  await t.test('R10: a request that Node refuses gets a declared error with every header', async (t) => {
    const cases: [string, string, number][] = [
      ['a malformed request line', 'GARBAGE\r\n\r\n', 400],
      ['a URL that is not percent-encoded', 'GET /tts?text=h\u00e9llo HTTP/1.1\r\nhost: a\r\n\r\n', 400],
      ['an unknown HTTP version', 'GET / HTTP/9.9\r\nhost: a\r\n\r\n', 400],
      ['a header without a colon', 'GET / HTTP/1.1\r\nhost: a\r\nnonsense\r\n\r\n', 400],
      ['a control character in a header', 'GET / HTTP/1.1\r\nhost: a\r\nx: \x01\r\n\r\n', 400],
      ['two lengths', 'POST /tts HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab', 400],
      [
        'a bad chunk',
        'POST /tts HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n',
        400,
      ],
      ['headers over 64 KiB', `GET / HTTP/1.1\r\nhost: a\r\nx: ${'a'.repeat(66_000)}\r\n\r\n`, 431],
      ['a request line over 64 KiB', `GET /${'a'.repeat(66_000)} HTTP/1.1\r\nhost: a\r\n\r\n`, 431],
      ['no host', 'GET / HTTP/1.1\r\nconnection: close\r\n\r\n', 400],
      ['a fragment', 'GET /docs#part HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n', 400],
      ['an unknown expectation', 'GET / HTTP/1.1\r\nhost: a\r\nexpect: wonders\r\nconnection: close\r\n\r\n', 417],
    ];
    for (const [name, bytes, status] of cases) {
      await t.test(name, async (t) => {
        const answer = await raw(url, bytes);
        t.equal(answer.status, status);
        assertContract('GET', '/nowhere', answer);
      });
    }
  });

  for (const [target, field, rule] of [
    ['/tts?text=h\u00e9llo', 'url', 'percent-encoding'],
    ['/credits/%E4', 'path', 'percent-encoding'],
    [`/${'a'.repeat(66_000)}`, 'headers', 'maxBytes'],
  ] as const) {
    await t.test(`an error of the request line names its field: ${field}`, async (t) => {
      const { bytes } = await raw(url, `GET ${target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
      t.strictSame(JSON.parse(`${bytes}`).error.details, { field, rule });
    });
  }

  await t.test('a HEAD with an invalid body is refused without a response body', async (t) => {
    const answer = await raw(url, 'HEAD / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n', 'HEAD');
    t.strictSame([answer.status, answer.bytes.toString()], [400, '']);
    assertContract('HEAD', '/nowhere', answer);
  });

  await t.test('each operation declares the errors of the edge', async (t) => {
    const { paths } = (await call('/openapi.json')).json as {
      paths: Record<string, Record<string, { responses: Record<string, unknown> }>>;
    };
    const host = 'host: speechgate.test\r\n';
    const cases: [name: string, fields: string, status: number][] = [
      ['headers over 64 KiB', `${host}x-a: ${'a'.repeat(70_000)}\r\n`, 431],
      ['another expectation', `${host}expect: a-miracle\r\n`, 417],
      ['no host', '', 400],
    ];
    for (const [path, operations] of Object.entries(paths)) {
      for (const [method, { responses }] of Object.entries(operations)) {
        await t.test(`${method} ${path}`, async (t) => {
          for (const [name, fields, status] of cases) {
            const target = path.replaceAll(/\{\w+\}/g, 'x');
            const head = `${method.toUpperCase()} ${target} HTTP/1.1\r\nconnection: close\r\n${fields}\r\n`;
            t.equal((await raw(url, head)).status, status, name);
            t.ok(responses[status], `${name}: ${status}`);
          }
          for (const status of [408, 429, 500]) t.ok(responses[status], String(status));
        });
      }
    }
  });

  await t.test('invalid paths and methods get the declared error', async (t) => {
    const cases: [string, string, Call, number, string?][] = [
      ['an unknown path', '/nope', {}, 404, 'NOT_FOUND'],
      ['R51: a trailing slash is another path', '/tts/models/', {}, 404, 'NOT_FOUND'],
      ['bad percent-encoding in the path', '/credits/%zz', {}, 400, 'INVALID_REQUEST'],
      ['bad UTF-8 in the query', '/tts?text=%E0%A4%A', {}, 400, 'INVALID_REQUEST'],
      ['another method on a known path', '/tts/models', { method: 'DELETE' }, 405, 'INVALID_REQUEST'],
      ['a method that Fastify does not know', '/tts', { method: 'PROPFIND' }, 405, 'INVALID_REQUEST'],
      ['a 128-character id', `/credits/${'a'.repeat(128)}`, {}, 404, 'NOT_FOUND'],
      ['R51: an id over 128 characters', `/credits/${'a'.repeat(3000)}`, {}, 404, 'NOT_FOUND'],
      ['R57: an id that is not a UUID', '/credits/not-a-uuid', {}, 404, 'NOT_FOUND'],
      ['R57: the id of a contra account', '/credits/00000000-0000-4000-8000-000000000001', {}, 404, 'NOT_FOUND'],
    ];
    for (const [name, path, request, status, code] of cases) {
      await t.test(name, async (t) => {
        const reply = await call(path, request);
        t.equal(reply.status, status);
        if (code) t.equal(reply.json.error.code, code);
      });
    }
  });

  await t.test('an empty path parameter is not found', async (t) => {
    for (const path of ['/credits/', '/x402/accounts/', '/tts/jobs/', '/tts/jobs//audio', '/tts/jobs//audio?sig=x']) {
      for (const method of ['GET', 'HEAD', 'DELETE']) {
        await t.test(`${method} ${path}`, async (t) => {
          const reply = await call(path, { method });
          t.equal(reply.status, 404);
          t.equal(reply.headers.get('allow'), null);
          if (method === 'HEAD') t.equal(reply.bytes.length, 0);
          else t.strictSame(reply.json.error.details, { field: 'path' });
        });
      }
    }
  });

  await t.test('R51: HEAD never charges or credits', async (t) => {
    for (const path of ['/tts?text=hello', '/top-up/complete?session_id=cs_test_1']) {
      await t.test(`${path} answers 405 with allow`, async (t) => {
        const reply = await call(path, { method: 'HEAD' });
        t.equal(reply.status, 405);
        t.equal(reply.bytes.length, 0);
        t.match(reply.headers.get('allow') ?? '', /GET.*OPTIONS/);
        t.notMatch(reply.headers.get('allow') ?? '', /HEAD/);
      });
    }
    for (const path of ['/', '/docs', '/tts/models', '/top-up', '/openapi.json']) {
      await t.test(`${path} answers as GET without a body`, async (t) => {
        const [head, get] = [await call(path, { method: 'HEAD' }), await call(path)];
        t.equal(head.status, 200);
        t.equal(head.bytes.length, 0);
        t.equal(head.headers.get('content-length'), get.headers.get('content-length'));
      });
    }
  });

  await t.test('OPTIONS is 204 on any path and allows the headers of every flow', async (t) => {
    for (const path of ['/tts', '/credits/x', '/nope', '*']) {
      const reply = await call(path, { method: 'OPTIONS' });
      t.equal(reply.status, 204);
      t.equal(reply.bytes.length, 0);
    }
    const headers = { origin: 'https://page.example', 'access-control-request-method': 'POST' };
    const preflight = await call('/tts', { method: 'OPTIONS', headers });
    const allowed = preflight.headers.get('access-control-allow-headers') ?? '';
    // Only the card processor sends its events.
    for (const route of routes.filter(({ operationId }) => operationId !== 'receiveStripeEvent')) {
      for (const name of route.headers) t.ok(allowed.includes(name), `${name} is not allowed`);
    }
    for (const name of ['payment-signature', 'x-x402-signature', 'x-x402-account']) t.ok(allowed.includes(name));
    t.equal(preflight.headers.get('access-control-allow-credentials'), null);
    t.equal((await call('/tts', { method: 'OPTIONS' })).headers.get('allow'), 'GET, POST, OPTIONS');
  });

  await t.test('every declared response header is exposed to other origins', async (t) => {
    const contract = (await call('/openapi.json')).json as {
      components: { responses: object };
      paths: Record<string, Record<string, { responses: object }>>;
    };
    const exposed = ((await call('/')).headers.get('access-control-expose-headers') ?? '').split(', ');
    const declared = new Set<string>();
    const collect = (responses: object) => {
      for (const { headers } of Object.values(responses) as { headers?: object }[]) {
        for (const name of Object.keys(headers ?? {})) declared.add(name.toLowerCase());
      }
    };
    collect(contract.components.responses);
    for (const path of Object.values(contract.paths)) {
      for (const { responses } of Object.values(path)) collect(responses);
    }
    t.ok(declared.size > 0);
    // A script may read the length in any case, and has no use for the policy and for what is meant for a proxy.
    const notExposed = ['content-length', 'content-security-policy', 'vary', 'x-accel-buffering'];
    for (const name of declared) {
      t.ok(exposed.includes(name) || notExposed.includes(name), `${name} is not exposed`);
    }
  });
});

/** An edge with nothing behind it: what it says to a request from an address at a time in milliseconds. */
async function startEdge(max: number, maxClients?: number) {
  const clock = { now: 0 };
  const minutes = new EdgeMinutes(maxClients, () => clock.now);
  const app = Fastify();
  const limiter = await EdgeLimiter.on(app, max, minutes);
  app.decorateRequest('client');
  app.addHook('onRequest', async (request) => {
    request.client = addressKey(request.ip);
  });
  app.get('/', (request) => limiter.take(request));
  const take = async (remoteAddress: string, now: number): Promise<Slot> => {
    clock.now = now;
    return (await app.inject({ url: '/', remoteAddress })).json();
  };
  return { take, minutes };
}

test('the window of a client starts with its first request and lasts 60 seconds', async (t) => {
  const limiter = await startEdge(2);
  const slot = { scope: 'edge', limit: 2, windowSeconds: 60 };
  t.strictSame(await limiter.take('192.0.2.1', 1000), { ...slot, allowed: true, remaining: 1, resetSeconds: 60 });
  t.strictSame(await limiter.take('192.0.2.1', 1250), { ...slot, allowed: true, remaining: 0, resetSeconds: 60 });
  t.strictSame(await limiter.take('192.0.2.1', 11_500), {
    ...slot,
    allowed: false,
    remaining: 0,
    resetSeconds: 50,
  });
  t.equal((await limiter.take('192.0.2.2', 11_500)).allowed, true);
  t.strictSame(await limiter.take('192.0.2.1', 60_999), { ...slot, allowed: false, remaining: 0, resetSeconds: 1 });
  t.strictSame(await limiter.take('192.0.2.1', 61_000), { ...slot, allowed: true, remaining: 1, resetSeconds: 60 });
});

test('expired windows are removed, and a flood of addresses has bounded memory', async (t) => {
  const limiter = await startEdge(1, 1000);
  for (let host = 0; host < 3000; host += 1) await limiter.take(`10.0.${host >> 8}.${host & 255}`, host);
  t.equal(limiter.minutes.size, 1000);
  t.equal((await limiter.take('10.0.11.183', 3000)).allowed, false, 'the latest client is still counted');
  await limiter.take('192.0.2.1', 62_500);
  t.equal(limiter.minutes.size, 500);
  await limiter.take('192.0.2.1', 63_000);
  t.equal(limiter.minutes.size, 1);
});

test('R39: the edge refuses any request with the declared error and headers', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '4' });
  t.equal((await gateway.call('/')).status, 200);
  t.equal((await gateway.call('/nowhere')).status, 404);
  t.equal((await gateway.call('/tts', { method: 'DELETE' })).status, 405);
  const last = await gateway.call('/tts/models');
  t.equal(last.status, 200);
  t.equal(last.headers.get('x-ratelimit-scope'), null, 'the edge shows itself only when it refuses');

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
    t.equal(reply.status, 429, path);
    const retryAfter = Number(reply.headers.get('retry-after'));
    t.ok(retryAfter > 0 && retryAfter <= 60, `Retry-After ${retryAfter}`);
    t.strictSame(
      ['limit', 'policy', 'remaining', 'reset', 'scope'].map((name) => reply.headers.get(`x-ratelimit-${name}`)),
      ['4', '4;w=60', '0', String(retryAfter), 'edge'],
    );
    if (path === '/' && 'method' in call) continue;
    t.equal(reply.json.error.code, 'RATE_LIMITED');
    t.strictSame(reply.json.error.details, {
      scope: 'edge',
      limit: 4,
      windowSeconds: 60,
      retryAfterSeconds: retryAfter,
    });
  }
});

test('a refused request is answered before its body arrives', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '1' });
  await gateway.call('/');
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
  await once(socket, 'connect');
  socket.write('POST /tts HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 50000\r\n\r\n{');
  const [head] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  t.match(head.toString(), /^HTTP\/1\.1 429 /);
});

test('preflights are not counted, other OPTIONS requests are', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '1' });
  const headers = { origin: 'https://page.example', 'access-control-request-method': 'POST' };
  for (let count = 0; count < 3; count += 1) {
    t.equal((await gateway.call('/tts', { method: 'OPTIONS', headers })).status, 204);
  }
  t.equal((await gateway.call('/tts', { method: 'OPTIONS' })).status, 204);
  t.equal((await gateway.call('/tts', { method: 'OPTIONS' })).status, 429);
  t.equal((await gateway.call('/tts', { method: 'OPTIONS', headers })).status, 204);
});

test('a request that only the router refuses is counted too', async (t) => {
  const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '2' });
  t.equal((await gateway.call('/%zz')).status, 400);
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
  socket.end('GET / HTTP/1.1\r\nconnection: close\r\n\r\n');
  t.match(await text(socket), /^HTTP\/1\.1 400 /);
  t.equal((await gateway.call('/')).status, 429);
});

test('R39: behind a trusted proxy, the proxy determines the address of a client', async (t) => {
  const env = { EDGE_RATE_LIMIT_MAX: '2', TRUST_PROXY: '127.0.0.0/8, 10.1.0.0/16, fd00::/8', LOG_LEVEL: 'warn' };
  const gateway = await startGateway(t, env);
  const from = async (forwarded: string) =>
    (await gateway.call('/', { headers: { 'x-forwarded-for': forwarded } })).status;
  t.strictSame(
    [await from('198.51.100.1, 192.0.2.1'), await from('198.51.100.2, 192.0.2.1'), await from('192.0.2.1, 10.1.2.3')],
    [200, 200, 429],
  );
  t.equal(await from('192.0.2.2'), 200, 'another client has a minute of its own');
  t.strictSame(
    [await from('2001:db8::1'), await from('2001:db8::ffff'), await from('2001:db8:0:0:1::')],
    [200, 200, 429],
  );
  t.strictSame(
    [await from('192.0.2.3:50000'), await from('192.0.2.4:50000'), await from('192.0.2.3:50001')],
    [200, 200, 200],
  );
  t.strictSame([await from('9.9.9.9, 192.0.2.3:7, 10.1.2.3:443'), await from('192.0.2.3, [fd00::1]:80')], [429, 429]);
  t.strictSame(
    [await from('[2001:db8:7::1]:443'), await from('[2001:db8:7::2]:444'), await from('[2001:db8:7::3]')],
    [200, 200, 429],
  );
  const told = () => gateway.log.filter(({ msg }) => /without an IP address/.test(String(msg))).length;
  t.equal(told(), 0);
  t.strictSame(
    [await from('_hidden'), await from('_hidden:1'), await from('forged, _hidden'), await from('unknown')],
    [200, 200, 429, 200],
  );
  t.equal(told(), 1);
});

test('R39: without TRUST_PROXY, or from a proxy outside it, X-Forwarded-For is ignored', async (t) => {
  for (const TRUST_PROXY of ['', '10.1.0.0/16']) {
    const gateway = await startGateway(t, { EDGE_RATE_LIMIT_MAX: '1', TRUST_PROXY });
    const from = async (forwarded: string) =>
      (await gateway.call('/', { headers: { 'x-forwarded-for': forwarded } })).status;
    t.strictSame([await from('192.0.2.1'), await from('192.0.2.2')], [200, 429], TRUST_PROXY);
  }
});

/** What JavaScript or JSON may take for a number. */
const NO_DECIMALS = ['1e0', '0x1', ' 1', '+1', '', '.5', '1.', '1,5', '１', 'NaN', '1\n'];

test('the edge validates bodies and query parameters', async (t) => {
  const { call } = await startGateway(t);

  await t.test('an invalid body gets the declared error', async (t) => {
    const post = (headers: Record<string, string>, body: string | Buffer): Call => ({ method: 'POST', headers, body });
    const json = { 'content-type': 'application/json' };
    const plain = { 'content-type': 'text/plain' };
    const big = 'a'.repeat(65_537);
    const [unsupported, tooLarge, invalid] = ['UNSUPPORTED_CONTENT_TYPE', 'REQUEST_TOO_LARGE', 'INVALID_REQUEST'];
    const of = (value: object) => post(json, JSON.stringify(value));
    const labelled = (headers: Record<string, string>) => post({ ...json, ...headers }, '{"text":"a"}');
    const cases: [string, Call, number, string][] = [
      ['no content type', post({}, '{"text":"a"}'), 415, unsupported],
      ['another content type', post({ 'content-type': 'text/html' }, 'a'), 415, unsupported],
      ['an invalid content type', post({ 'content-type': ';;' }, 'a'), 415, unsupported],
      ['R51: another charset', post({ 'content-type': 'text/plain; charset=latin1' }, 'a'), 415, unsupported],
      ['a compressed body', post({ ...json, 'content-encoding': 'gzip' }, 'a'), 415, unsupported],
      ['R7: the type comes before the size', post({ 'content-type': 'text/html' }, big), 415, unsupported],
      ['R4: a body over 64 KiB', post(plain, big), 413, tooLarge],
      ['R7: the size comes before the JSON', post(json, big), 413, tooLarge],
      ['invalid JSON', post(json, '{"text":'), 400, 'INVALID_JSON'],
      ['an empty body', post(json, ''), 400, 'INVALID_JSON'],
      ['invalid UTF-8 in JSON', post(json, Buffer.from([0x22, 0xff, 0x22])), 400, 'INVALID_JSON'],
      ['R2: invalid UTF-8 in text', post(plain, Buffer.from([0x61, 0xff])), 400, invalid],
      ['an array', of([]), 400, invalid],
      ['no text', of({}), 400, invalid],
      ['text of another type', of({ text: 1 }), 400, invalid],
      ['R2: only white space', of({ text: ' \n\u00a0 ' }), 400, invalid],
      ['R2: a lone surrogate', of({ text: 'a\ud800' }), 400, invalid],
      ['R2: surrogates in the wrong order', of({ text: '\ude00\ud83d' }), 400, invalid],
      ['R2: U+0000', of({ text: 'a\u0000b' }), 400, invalid],
      ['R8: speed of another type', of({ text: 'a', speed: '1' }), 400, 'INVALID_SPEED'],
      ['R8: speed out of range', of({ text: 'a', speed: 2.01 }), 400, 'INVALID_SPEED'],
      ['R8: an unknown model', of({ text: 'a', model: 'tts-1' }), 400, 'UNKNOWN_TTS_MODEL'],
      ['R8: model of another type', of({ text: 'a', model: 7 }), 400, 'UNKNOWN_TTS_MODEL'],
      ['R8: a bare voice slug', of({ text: 'a', voice: 'alloy' }), 400, 'INVALID_VOICE'],
      ['R8: text over the cap', of({ text: 'a'.repeat(4097) }), 413, 'TEXT_TOO_LONG'],
      ['R7: the model comes before the cap', of({ text: 'a'.repeat(4097), model: 'x' }), 400, 'UNKNOWN_TTS_MODEL'],
      ['R7: the voice comes before the speed', of({ text: 'a', voice: 'x_y', speed: 1.5 }), 400, 'INVALID_VOICE'],
      ['R36: a header of another flow', labelled({ 'payment-signature': 'x' }), 400, invalid],
      ['an idempotency key over 512 characters', labelled({ 'idempotency-key': 'k'.repeat(513) }), 400, invalid],
      ['an account header over 128 characters', labelled({ 'x-credit-account': 'k'.repeat(129) }), 400, invalid],
    ];
    for (const [name, request, status, code] of cases) {
      await t.test(name, async (t) => {
        const reply = await call('/tts', request);
        t.equal(reply.json.error?.code, code, reply.text);
        t.equal(reply.status, status);
      });
    }
    await t.test('R7: a wrong content type is 415 without a body; no type and no body is 400', async (t) => {
      for (const path of ['/tts', '/x402/tts', '/x402/tts/quote', '/x402/deposit', '/feedback', '/top-up']) {
        for (const length of [{}, { 'content-length': '0' }]) {
          const wrong = await call(path, { method: 'POST', headers: { 'content-type': 'text/html', ...length } });
          t.strictSame([wrong.status, wrong.json.error.code], [415, 'UNSUPPORTED_CONTENT_TYPE'], path);
          if (path === '/top-up') continue;
          const none = await call(path, { method: 'POST', headers: length });
          t.strictSame([none.status, none.json.error.code], [400, 'INVALID_REQUEST'], path);
        }
      }
    });
    await t.test('R51: unknown members and any spelling of UTF-8 are accepted', async (t) => {
      const reply = await call(
        '/tts',
        post({ 'content-type': 'Application/JSON; Charset="UTF-8"' }, '{"text":"a","__proto__":{},"x":1}'),
      );
      t.equal(reply.status, 402);
    });
    await t.test('R2: query parameters of a POST count only with text/plain', async (t) => {
      t.equal((await call('/tts?speed=9&model=x', post(json, '{"text":"a"}'))).status, 402);
      t.equal((await call('/tts?speed=9', post(plain, 'a'))).json.error.code, 'INVALID_SPEED');
      t.equal((await call('/tts?model=x', post(plain, 'a'))).json.error.code, 'UNKNOWN_TTS_MODEL');
      t.equal((await call('/tts?speed=1.5&voice=provider-a_nova', post(plain, 'a'))).status, 402);
    });
  });

  await t.test('GET /tts validates its query', async (t) => {
    const cases: [string, string, number, string?][] = [
      ['no text', '/tts', 400, 'INVALID_REQUEST'],
      ['R4: 1501 characters', `/tts?text=${'a'.repeat(1501)}`, 400, 'INVALID_REQUEST'],
      ['R1: 1500 characters after trimming', `/tts?text=+${'a'.repeat(1500)}%20`, 402],
      ['R5: 1500 CJK characters', `/tts?text=${'%E8%AA%9E'.repeat(1500)}`, 402],
      ['R1: an emoji counts two', `/tts?text=${'%F0%9F%98%80'.repeat(751)}`, 400, 'INVALID_REQUEST'],
      ['R49: a parameter given twice', '/tts?text=a&text=b', 400, 'INVALID_REQUEST'],
      ['R49: a repeated parameter with its own error code', '/tts?text=a&speed=1&speed=1', 400, 'INVALID_REQUEST'],
      ['R51: an empty model', '/tts?text=a&model=', 400, 'UNKNOWN_TTS_MODEL'],
      ...NO_DECIMALS.map((speed): [string, string, number, string] => [
        `R51: the speed ${JSON.stringify(speed)}`,
        `/tts?text=a&speed=${encodeURIComponent(speed)}`,
        400,
        'INVALID_SPEED',
      ]),
      ['R49: a repeated parameter that accepts any text', '/tts?text=a&async=0&async=0', 400, 'INVALID_REQUEST'],
    ];
    for (const [name, path, status, code] of cases) {
      await t.test(name, async (t) => {
        const reply = await call(path);
        t.equal(reply.status, status, reply.text);
        t.equal(reply.json.error.code, code ?? 'PAYMENT_REQUIRED');
      });
    }
    await t.test('R4: text too long for GET is refused with the limit and a hint to POST', async (t) => {
      const { error } = (await call(`/tts?text=${'a'.repeat(1501)}`)).json;
      t.equal(error.details.field, 'text');
      t.equal(error.details.maxLength, 1500);
      t.match(error.message, /POST/);
    });
  });
});
