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

  await t.test('bodies', async (t) => {
    const post = (headers: Record<string, string>, body: string | Buffer): Call => ({ method: 'POST', headers, body });
    const json = { 'content-type': 'application/json' };
    const plain = { 'content-type': 'text/plain' };
    const big = 'a'.repeat(65_537);
    const cases: [string, Call, number, string][] = [
      ['no content type', post({}, '{"text":"a"}'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      ['another content type', post({ 'content-type': 'text/html' }, 'a'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      ['a content type that is none', post({ 'content-type': ';;' }, 'a'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      [
        'R51: another charset',
        post({ 'content-type': 'text/plain; charset=latin1' }, 'a'),
        415,
        'UNSUPPORTED_CONTENT_TYPE',
      ],
      ['a compressed body', post({ ...json, 'content-encoding': 'gzip' }, 'a'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      [
        'R7: the type comes before the size',
        post({ 'content-type': 'text/html' }, big),
        415,
        'UNSUPPORTED_CONTENT_TYPE',
      ],
      ['R4: over 64 KiB', post(plain, big), 413, 'REQUEST_TOO_LARGE'],
      ['R7: the size comes before the JSON', post(json, big), 413, 'REQUEST_TOO_LARGE'],
      ['no JSON', post(json, '{"text":'), 400, 'INVALID_JSON'],
      ['an empty body', post(json, ''), 400, 'INVALID_JSON'],
      ['invalid UTF-8 in JSON', post(json, Buffer.from([0x22, 0xff, 0x22])), 400, 'INVALID_JSON'],
      ['R2: invalid UTF-8 in text', post(plain, Buffer.from([0x61, 0xff])), 400, 'INVALID_REQUEST'],
      ['an array', post(json, '[]'), 400, 'INVALID_REQUEST'],
      ['null', post(json, 'null'), 400, 'INVALID_REQUEST'],
      ['no text', post(json, '{}'), 400, 'INVALID_REQUEST'],
      ['text of another type', post(json, '{"text":1}'), 400, 'INVALID_REQUEST'],
      ['R2: only white space', post(json, '{"text":" \\n\\u00a0 "}'), 400, 'INVALID_REQUEST'],
      ['R2: a lone surrogate', post(json, '{"text":"a\\ud800"}'), 400, 'INVALID_REQUEST'],
      ['R2: U+0000', post(json, '{"text":"a\\u0000b"}'), 400, 'INVALID_REQUEST'],
      ['R8: speed of another type', post(json, '{"text":"a","speed":"1"}'), 400, 'INVALID_SPEED'],
      ['R8: speed out of range', post(json, '{"text":"a","speed":2.01}'), 400, 'INVALID_SPEED'],
      ['R8: an unknown model', post(json, '{"text":"a","model":"tts-1"}'), 400, 'UNKNOWN_TTS_MODEL'],
      ['R8: model of another type', post(json, '{"text":"a","model":7}'), 400, 'UNKNOWN_TTS_MODEL'],
      ['R8: a bare voice slug', post(json, '{"text":"a","voice":"alloy"}'), 400, 'INVALID_VOICE'],
      ['R8: text over the cap', post(json, JSON.stringify({ text: 'a'.repeat(4097) })), 413, 'TEXT_TOO_LONG'],
      [
        'R7: the model comes before the cap',
        post(json, JSON.stringify({ text: 'a'.repeat(4097), model: 'x' })),
        400,
        'UNKNOWN_TTS_MODEL',
      ],
      [
        'R7: the voice comes before the speed',
        post(json, '{"text":"a","voice":"x_y","speed":1.5}'),
        400,
        'INVALID_VOICE',
      ],
      [
        'R36: a header of another flow',
        post({ ...json, 'payment-signature': 'x' }, '{"text":"a"}'),
        400,
        'INVALID_REQUEST',
      ],
      [
        'an idempotency key over 512 characters',
        post({ ...json, 'idempotency-key': 'k'.repeat(513) }, '{"text":"a"}'),
        400,
        'INVALID_REQUEST',
      ],
      [
        'an account header over 128 characters',
        post({ ...json, 'x-credit-account': 'k'.repeat(129) }, '{"text":"a"}'),
        400,
        'INVALID_REQUEST',
      ],
    ];
    for (const [name, request, status, code] of cases) {
      await t.test(name, async () => {
        const reply = await call('/tts', request);
        assert.equal(reply.json.error?.code, code, reply.text);
        assert.equal(reply.status, status);
      });
    }
    await t.test(
      'R7: a wrong content type is 415 also without a body; neither is 400 where a body is required',
      async () => {
        for (const path of ['/tts', '/x402/tts', '/x402/tts/quote', '/x402/deposit', '/feedback', '/top-up']) {
          for (const length of [{}, { 'content-length': '0' }]) {
            const wrong = await call(path, { method: 'POST', headers: { 'content-type': 'text/html', ...length } });
            assert.deepEqual([wrong.status, wrong.json.error.code], [415, 'UNSUPPORTED_CONTENT_TYPE'], path);
            if (path === '/top-up') continue;
            const none = await call(path, { method: 'POST', headers: length });
            assert.deepEqual([none.status, none.json.error.code], [400, 'INVALID_REQUEST'], path);
          }
        }
      },
    );
    await t.test('R51: unknown members and UTF-8 in any spelling are fine', async () => {
      const reply = await call(
        '/tts',
        post({ 'content-type': 'Application/JSON; Charset="UTF-8"' }, '{"text":"a","__proto__":{},"x":1}'),
      );
      assert.equal(reply.status, 402);
    });
    await t.test('R2: parameters in the query of POST count only with text/plain', async () => {
      assert.equal((await call('/tts?speed=9&model=x', post(json, '{"text":"a"}'))).status, 402);
      assert.equal((await call('/tts?speed=9', post(plain, 'a'))).json.error.code, 'INVALID_SPEED');
      assert.equal((await call('/tts?model=x', post(plain, 'a'))).json.error.code, 'UNKNOWN_TTS_MODEL');
      assert.equal((await call('/tts?speed=1.5&voice=provider-a_nova', post(plain, 'a'))).status, 402);
    });
  });

  await t.test('GET /tts', async (t) => {
    const cases: [string, string, number, string?][] = [
      ['no text', '/tts', 400, 'INVALID_REQUEST'],
      ['R4: 1501 characters', `/tts?text=${'a'.repeat(1501)}`, 400, 'INVALID_REQUEST'],
      ['R1: 1500 characters after trimming', `/tts?text=+${'a'.repeat(1500)}%20`, 402],
      ['R5: 1500 CJK characters', `/tts?text=${'%E8%AA%9E'.repeat(1500)}`, 402],
      ['R1: an emoji counts two', `/tts?text=${'%F0%9F%98%80'.repeat(751)}`, 400, 'INVALID_REQUEST'],
      ['R49: a parameter given twice', '/tts?text=a&text=b', 400, 'INVALID_REQUEST'],
      ['R49: also one with a code of its own', '/tts?text=a&speed=1&speed=1', 400, 'INVALID_REQUEST'],
      ['R51: an empty model', '/tts?text=a&model=', 400, 'UNKNOWN_TTS_MODEL'],
      ['R51: an exponent', '/tts?text=a&speed=1e0', 400, 'INVALID_SPEED'],
      ['R51: a sign', '/tts?text=a&speed=%2B1', 400, 'INVALID_SPEED'],
      ['R51: hexadecimal', '/tts?text=a&speed=0x1', 400, 'INVALID_SPEED'],
      ['R49: also one that may hold any text', '/tts?text=a&async=0&async=0', 400, 'INVALID_REQUEST'],
    ];
    for (const [name, path, status, code] of cases) {
      await t.test(name, async () => {
        const reply = await call(path);
        assert.equal(reply.status, status, reply.text);
        assert.equal(reply.json.error.code, code ?? 'PAYMENT_REQUIRED');
      });
    }
    await t.test('R4: a text that is too long for GET is told the limit and the way out', async () => {
      const { error } = (await call(`/tts?text=${'a'.repeat(1501)}`)).json;
      assert.equal(error.details.field, 'text');
      assert.equal(error.details.maxLength, 1500);
      assert.match(error.message, /POST/);
    });
  });
});
