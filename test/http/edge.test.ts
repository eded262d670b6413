import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { type Test, test } from 'tap';
import { routes } from '../../src/contract/routes.ts';
import { assertContract } from '../support/contract.ts';
import { type Call, type Gateway, startGateway } from '../support/gateway.ts';

let shared: Promise<Gateway> | undefined;
/** One gateway for the whole file; it ends with the first test's hooks only when the process does. */
const gateway = (t: Test) => (shared ??= startGateway(t));

/** Sends bytes as they are and reads the answer to the end of the connection. */
async function raw(url: string, bytes: string | Buffer) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(bytes);
  const [head = '', body = ''] = (await text(socket)).split('\r\n\r\n', 2);
  const [line = '', ...fields] = head.split('\r\n');
  return {
    status: Number(line.split(' ')[1]),
    headers: new Headers(fields.map((field) => field.split(/: ?(.*)/s, 2) as [string, string])),
    bytes: Buffer.from(body),
  };
}

test('the edge', async (t) => {
  const { url, call } = await gateway(t);

  await t.test('R10: what Node itself refuses is a declared structured error with every header', async (t) => {
    const cases: [string, string, number][] = [
      ['a malformed request line', 'GARBAGE\r\n\r\n', 400],
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
      await t.test(name, async () => {
        const answer = await raw(url, bytes);
        assert.equal(answer.status, status);
        assertContract('GET', '/nowhere', answer);
      });
    }
  });

  await t.test('a HEAD whose body is no HTTP is refused without a body of our own', async () => {
    const answer = await raw(url, 'HEAD / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n');
    assert.deepEqual([answer.status, answer.bytes.toString()], [400, '']);
    assertContract('HEAD', '/nowhere', answer);
  });

  await t.test('what the edge answers an operation with is declared at that operation', async (t) => {
    const { paths } = (await call('/openapi.json')).json as {
      paths: Record<string, Record<string, { responses: Record<string, unknown> }>>;
    };
    const host = 'host: speechgate.test\r\n';
    const cases: [name: string, fields: string, status: number][] = [
      ['too many headers', host + 'x-a: 1\r\n'.repeat(201), 431],
      ['headers over 64 KiB', `${host}x-a: ${'a'.repeat(70_000)}\r\n`, 431],
      ['another expectation', `${host}expect: a-miracle\r\n`, 417],
      ['no host', '', 400],
    ];
    for (const [path, operations] of Object.entries(paths)) {
      for (const [method, { responses }] of Object.entries(operations)) {
        await t.test(`${method} ${path}`, async () => {
          for (const [name, fields, status] of cases) {
            const target = path.replaceAll(/\{\w+\}/g, 'x');
            const head = `${method.toUpperCase()} ${target} HTTP/1.1\r\nconnection: close\r\n${fields}\r\n`;
            assert.equal((await raw(url, head)).status, status, name);
            assert.ok(responses[status], `${name}: ${status}`);
          }
          for (const status of [408, 429, 500]) assert.ok(responses[status], String(status));
        });
      }
    }
  });

  await t.test('paths and methods', async (t) => {
    const cases: [string, string, Call, number, string?][] = [
      ['an unknown path', '/nope', {}, 404, 'NOT_FOUND'],
      ['R51: a trailing slash is another path', '/tts/models/', {}, 404, 'NOT_FOUND'],
      ['bad percent-encoding in the path', '/credits/%zz', {}, 400, 'INVALID_REQUEST'],
      ['bad UTF-8 in the query', '/tts?text=%E0%A4%A', {}, 400, 'INVALID_REQUEST'],
      ['another method on a known path', '/tts/models', { method: 'DELETE' }, 405, 'INVALID_REQUEST'],
      ['a method that Fastify does not know', '/tts', { method: 'PROPFIND' }, 405, 'INVALID_REQUEST'],
      ['a 128-character id', `/credits/${'a'.repeat(128)}`, {}, 404, 'NOT_FOUND'],
      ['R51: an id over 128 characters', `/credits/${'a'.repeat(3000)}`, {}, 404, 'NOT_FOUND'],
      ['R57: an id that is no UUID', '/credits/not-a-uuid', {}, 404, 'NOT_FOUND'],
      ['R57: a contra account is no account', '/credits/00000000-0000-4000-8000-000000000001', {}, 404, 'NOT_FOUND'],
    ];
    for (const [name, path, request, status, code] of cases) {
      await t.test(name, async () => {
        const reply = await call(path, request);
        assert.equal(reply.status, status);
        if (code) assert.equal(reply.json.error.code, code);
      });
    }
  });

  await t.test('an empty path parameter is another path', async (t) => {
    for (const path of ['/credits/', '/x402/accounts/', '/tts/jobs/', '/tts/jobs//audio', '/tts/jobs//audio?sig=x']) {
      for (const method of ['GET', 'HEAD', 'DELETE']) {
        await t.test(`${method} ${path}`, async () => {
          const reply = await call(path, { method });
          assert.equal(reply.status, 404);
          assert.equal(reply.headers.get('allow'), null);
          if (method === 'HEAD') assert.equal(reply.bytes.length, 0);
          else assert.deepEqual(reply.json.error.details, { field: 'path' });
        });
      }
    }
  });

  await t.test('R51: HEAD never charges or credits', async (t) => {
    for (const path of ['/tts?text=hello', '/top-up/complete?session_id=cs_test_1']) {
      await t.test(`${path} answers 405 with allow`, async () => {
        const reply = await call(path, { method: 'HEAD' });
        assert.equal(reply.status, 405);
        assert.equal(reply.bytes.length, 0);
        assert.match(reply.headers.get('allow') ?? '', /GET.*OPTIONS/);
        assert.doesNotMatch(reply.headers.get('allow') ?? '', /HEAD/);
      });
    }
    for (const path of ['/', '/tts/models', '/top-up', '/openapi.json']) {
      await t.test(`${path} answers as GET without a body`, async () => {
        const [head, get] = [await call(path, { method: 'HEAD' }), await call(path)];
        assert.equal(head.status, 200);
        assert.equal(head.bytes.length, 0);
        assert.equal(head.headers.get('content-length'), get.headers.get('content-length'));
      });
    }
  });

  await t.test('OPTIONS is 204 on any path, a preflight or not, and allows the headers of every flow', async () => {
    for (const path of ['/tts', '/credits/x', '/nope', '*']) {
      const reply = await call(path, { method: 'OPTIONS' });
      assert.equal(reply.status, 204);
      assert.equal(reply.bytes.length, 0);
    }
    const headers = { origin: 'https://page.example', 'access-control-request-method': 'POST' };
    const preflight = await call('/tts', { method: 'OPTIONS', headers });
    const allowed = preflight.headers.get('access-control-allow-headers') ?? '';
    for (const route of routes) {
      for (const name of route.headers) assert.ok(allowed.includes(name), `${name} is not allowed`);
    }
    for (const name of ['payment-signature', 'x-x402-signature', 'x-x402-account']) assert.ok(allowed.includes(name));
    assert.equal(preflight.headers.get('access-control-allow-credentials'), null);
    assert.equal((await call('/tts', { method: 'OPTIONS' })).headers.get('allow'), 'GET, POST, OPTIONS');
  });

  await t.test('every response header that the contract declares is exposed to pages of other origins', async () => {
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
    assert.ok(declared.size > 0);
    // A script may read the length in any case, and has no use for the policy.
    const notExposed = ['content-length', 'content-security-policy'];
    for (const name of declared) {
      assert.ok(exposed.includes(name) || notExposed.includes(name), `${name} is not exposed`);
    }
  });
});
