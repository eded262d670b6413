import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'tap';
import { parse } from 'yaml';
import { startGateway } from '../support/gateway.ts';

const ON_EVERY_ANSWER = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers':
    'x-trace-id, x-credit-account, x-credit-balance, x-credit-charged, payment-required, payment-response, www-authenticate, ' +
    'x-payment-identifier, x-idempotent-replay, x-x402-balance, x-x402-charged, retry-after, x-ratelimit-limit, ' +
    'x-ratelimit-policy, x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-scope, content-disposition, ' +
    'content-range, accept-ranges, cache-control, location, allow',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'cross-origin',
  'referrer-policy': 'no-referrer',
  'strict-transport-security': 'max-age=31536000; includeSubDomains',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

const ON_PREFLIGHTS = {
  'access-control-allow-headers':
    'content-type, accept, range, if-range, idempotency-key, x-credit-account, x-credit-max-amount, payment-signature, x-x402-account, ' +
    'x-x402-nonce, x-x402-expiry, x-x402-max-amount, x-x402-signature, access-control-expose-headers',
  'access-control-allow-methods': 'GET, HEAD, POST, OPTIONS',
  'access-control-max-age': '86400',
};

/** The headers of the answer to a request, as they were sent. */
async function headersOf(url: string, bytes: string): Promise<[name: string, value: string][]> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(bytes);
  const [head = ''] = (await text(socket)).split('\r\n\r\n', 1);
  const fields = head.split('\r\n').slice(1);
  return fields.map((field) => field.split(/: ?(.*)/s, 2) as [string, string]);
}

/** Headers of the transport and of the answer at hand. */
const OWN = ['allow', 'connection', 'content-length', 'content-type', 'date', 'keep-alive', 'x-trace-id'];

test('every answer has the same headers, whoever writes it', async (t) => {
  const { url } = await startGateway(t);
  const close = 'host: a\r\nconnection: close\r\n';
  const cases: [name: string, bytes: string, more: object][] = [
    ['an operation', `GET /tts/models HTTP/1.1\r\n${close}\r\n`, {}],
    ['an unknown path', `GET /nowhere HTTP/1.1\r\n${close}\r\n`, {}],
    ['a path that the router can not read', `GET /%zz HTTP/1.1\r\n${close}\r\n`, {}],
    ['an expectation, refused before the framework', `GET / HTTP/1.1\r\n${close}expect: wonders\r\n\r\n`, {}],
    ['CONNECT, refused before the framework', `CONNECT a:1 HTTP/1.1\r\n${close}\r\n`, {}],
    ['no HTTP', 'GARBAGE\r\n\r\n', {}],
    ['OPTIONS', `OPTIONS /tts HTTP/1.1\r\n${close}\r\n`, ON_PREFLIGHTS],
    [
      'a preflight',
      `OPTIONS /tts HTTP/1.1\r\n${close}origin: https://a.example\r\naccess-control-request-method: POST\r\n\r\n`,
      ON_PREFLIGHTS,
    ],
  ];
  for (const [name, bytes, more] of cases) {
    await t.test(name, async () => {
      const headers = (await headersOf(url, bytes)).filter(([field]) => !OWN.includes(field.toLowerCase()));
      assert.deepEqual(Object.fromEntries(headers), { ...ON_EVERY_ANSWER, ...more });
    });
  }
});

test('pages of other origins may send every request header that the contract declares', async () => {
  const { paths, components } = parse(await readFile(new URL('../../openapi.yaml', import.meta.url), 'utf8'));
  const declared = [...JSON.stringify([paths, components.parameters]).matchAll(/"name":"([\w-]+)","in":"header"/g)];
  const names = new Set(declared.map(([, name]) => (name as string).toLowerCase()));
  assert.ok(names.size > 5);
  const allowed = ON_PREFLIGHTS['access-control-allow-headers'].split(', ');
  assert.deepEqual(
    [...names].filter((name) => !allowed.includes(name)),
    [],
  );
});
