import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';
import { parse } from 'yaml';
import { API_POLICY, assertContract, EDGE_HEADERS } from '../support/contract.ts';

interface EdgeHeader {
  readonly schema: { readonly enum?: string[]; readonly anyOf?: { readonly enum?: string[] }[] };
}

const HEADERS: Record<string, string> = {
  ...EDGE_HEADERS,
  'content-security-policy': API_POLICY,
  'x-trace-id': '7c9e6679-7425-40de-944b-e07fc1f90ae7',
  'content-type': 'application/json; charset=utf-8',
};
const NOT_FOUND = { error: { code: 'NOT_FOUND', message: 'There is nothing here.', details: null } };

const answer = (headers: Record<string, string> = {}, body: unknown = NOT_FOUND) => ({
  status: 404,
  headers: new Headers({ ...HEADERS, ...headers }),
  bytes: Buffer.from(JSON.stringify(body)),
});

test('an answer as the contract declares it passes', async () => {
  assertContract('GET', '/nowhere', answer({ date: 'Thu, 01 Jan 1970 00:00:00 GMT', connection: 'keep-alive' }));
});

const faults: [string, Record<string, string>, RegExp][] = [
  ['a shorter HSTS', { 'strict-transport-security': 'max-age=1' }, /strict-transport-security/],
  ['frames of the same origin', { 'x-frame-options': 'SAMEORIGIN' }, /x-frame-options/],
  ['another origin only', { 'access-control-allow-origin': 'https://page.example' }, /access-control-allow-origin/],
  ['a policy that allows more', { 'content-security-policy': `${API_POLICY}; script-src *` }, /its policy/],
  ['a trace id that is no UUID', { 'x-trace-id': '7' }, /x-trace-id/],
  ['an undeclared header', { 'x-foo': '1' }, /'x-foo'/],
  ['a header of another status', { 'retry-after': '1' }, /'retry-after'/],
  ['a cookie', { 'set-cookie': 'a=b' }, /'set-cookie'/],
];
for (const [name, headers, message] of faults) {
  test(`${name} fails`, async () => {
    assert.throws(() => assertContract('GET', '/nowhere', answer(headers)), message);
  });
}

for (const name of Object.keys(HEADERS).filter((header) => header !== 'content-type')) {
  test(`an answer without ${name} fails`, async () => {
    const lacking = answer();
    lacking.headers.delete(name);
    assert.throws(() => assertContract('GET', '/nowhere', lacking), new RegExp(`${name}|its policy`));
  });
}

test('an undeclared status, media type and body fail', async () => {
  assert.throws(() => assertContract('GET', '/nowhere', { ...answer(), status: 418 }), /418, which the contract/);
  assert.throws(() => assertContract('GET', '/nowhere', answer({ 'content-type': 'audio/ogg' })), /audio\/ogg/);
  const other = { error: { ...NOT_FOUND.error, code: 'OTHER' } };
  assert.throws(() => assertContract('GET', '/nowhere', answer({}, other)), /OTHER/);
});

test('the contract gives the same headers of every response, as values', async () => {
  const contract = parse(await readFile('openapi.yaml', 'utf8'));
  const { 'x-trace-id': _traceId, ...declared } = contract['x-edge-headers'].headers;
  assert.deepEqual(
    Object.fromEntries(
      Object.entries(declared as Record<string, EdgeHeader>).map(([name, { schema }]) => [
        name,
        (schema.enum ?? schema.anyOf?.[0]?.enum)?.[0],
      ]),
    ),
    { ...EDGE_HEADERS, 'content-security-policy': API_POLICY },
  );
});
