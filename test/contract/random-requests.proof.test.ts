import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { test } from 'tap';
import { parse } from 'yaml';
import { type Route, routes } from '../../src/contract/routes.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testCheckout } from '../support/checkout.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

const document = parse(await readFile('openapi.yaml', 'utf8'));
const REQUESTS = 5000;
const PARALLEL = 8;

interface Schema {
  $ref?: string;
  type?: string;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  properties?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  example?: unknown;
}
interface Parameter {
  $ref?: string;
  name: string;
  in: string;
  schema: Schema;
}
interface Operation {
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}

function resolve<T extends { $ref?: string }>(node: T): T {
  if (!node.$ref) return node;
  const path = node.$ref.slice(2).split('/');
  return resolve(path.reduce((at, key) => (at as Record<string, unknown>)[key], document) as T);
}

const oddText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '',
    ' ',
    'true',
    'null',
    '0',
    '-1',
    '1e9',
    '%',
    '../..',
    '\u0000',
    '\ud800',
    '😀',
    "'; drop table account; --",
  ),
  fc.nat({ max: 6000 }).map((length) => 'a'.repeat(length)),
);

/** Mostly what the schema allows, at and over its edges too, and sometimes anything at all. */
function valuesFor(given: Schema): fc.Arbitrary<unknown> {
  const schema = resolve(given);
  const fitting: fc.Arbitrary<unknown>[] = [];
  if (schema.example !== undefined) fitting.push(fc.constant(schema.example));
  if (schema.enum) fitting.push(fc.constantFrom(...schema.enum));
  for (const option of [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]) fitting.push(valuesFor(option));
  if (schema.type === 'string') fitting.push(fc.string({ maxLength: Math.min(schema.maxLength ?? 50, 50) }));
  if (schema.type === 'integer') {
    const { minimum = 0, maximum = 10_000 } = schema;
    fitting.push(fc.integer({ min: minimum, max: maximum }), fc.constantFrom(minimum - 1, maximum + 1));
  }
  if (schema.type === 'number') {
    const { minimum = 0, maximum = 100 } = schema;
    fitting.push(fc.double({ min: minimum, max: maximum, noNaN: true }), fc.constantFrom(minimum - 0.1, maximum + 0.1));
  }
  if (schema.type === 'boolean') fitting.push(fc.boolean());
  if (schema.type === 'object') {
    const members = Object.entries(schema.properties ?? {}).map(([name, member]) => [name, valuesFor(member)] as const);
    fitting.push(fc.record(Object.fromEntries(members), { requiredKeys: [] }));
  }
  const anything = fc.oneof(fc.jsonValue(), oddText);
  return fitting.length === 0
    ? anything
    : fc.oneof({ weight: 9, arbitrary: fc.oneof(...fitting) }, { weight: 1, arbitrary: anything });
}

const textOf = (schema: Schema) =>
  valuesFor(schema).map((value) => (typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).toWellFormed());

function requestOf(route: Route, accounts: readonly string[]): fc.Arbitrary<{ path: string; call: Call }> {
  const paths = document.paths as Record<string, Record<string, Operation>>;
  const operation = paths[route.path.replaceAll(/:(\w+)/g, '{$1}')]?.[route.method.toLowerCase()] as Operation;
  const parameters = (operation.parameters ?? []).map(resolve);
  const named = (place: string) =>
    fc.record(
      Object.fromEntries(
        parameters
          .filter((parameter) => parameter.in === place)
          .map(({ name, schema }) => {
            const known = /account/i.test(name) ? [fc.constantFrom(...accounts)] : [];
            return [name, fc.oneof(textOf(schema), ...known)];
          }),
      ),
      { requiredKeys: [] },
    );
  const contents = Object.entries(operation.requestBody?.content ?? {});
  const bodies = contents.map(([type, { schema }]) =>
    valuesFor(schema).map((value) => ({
      type,
      body:
        type === 'application/json'
          ? (JSON.stringify(value) ?? '')
          : type === 'text/plain'
            ? String(value)
            : new URLSearchParams(
                Object.entries(Object(value)).map(([k, v]): [string, string] => [k, String(v)]),
              ).toString(),
    })),
  );
  const body = fc.oneof(
    ...(bodies.length > 0 ? bodies : [fc.constant(undefined)]),
    fc.record({ type: fc.constantFrom('application/json', 'text/html', ''), body: oddText }),
  );
  return fc
    .record({
      params: named('path'),
      query: named('query'),
      headers: named('header'),
      body,
      method: fc.oneof(
        { weight: 20, arbitrary: fc.constant<string>(route.method) },
        { weight: 1, arbitrary: fc.constantFrom('HEAD', 'PUT', 'OPTIONS', 'DELETE', 'GET', 'POST') },
      ),
    })
    .map(({ params, query, headers, body, method }) => {
      const path = route.path.replaceAll(/:(\w+)/g, (_, name) => encodeURIComponent(params[name] || 'x'));
      const search = new URLSearchParams(given(query)).toString();
      const sendable = given(headers)
        .map(([name, value]) => [name, value.replaceAll(/[^\x20-\x7e]/g, '?')] as const)
        .filter(([, value]) => value.length < 8000);
      const withBody = body !== undefined && !['GET', 'HEAD', 'OPTIONS'].includes(method);
      return {
        path: (search ? `${path}?${search}` : path).slice(0, 60_000),
        call: {
          method,
          headers: { ...Object.fromEntries(sendable), ...(withBody && body.type && { 'content-type': body.type }) },
          ...(withBody && { body: body.body }),
        },
      };
    });
}

test(`${REQUESTS} random requests: no undeclared status, no body that breaks the contract, no 5xx`, async (t) => {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const checkout = await testCheckout(t);
  const gateway = await startGateway(t, { ...checkout.env, SPEECH_BASE_URL: upstream.url });
  const accounts = [await gateway.fund(99_999_999), await gateway.fund(500)];
  const arbitrary = fc.oneof(...routes.map((route) => requestOf(route, accounts)));
  const seen = new Map<string, number>();
  for (const batch of batches(fc.sample(arbitrary, { numRuns: REQUESTS, seed: Number(process.env.SEED ?? 1) }))) {
    await Promise.all(
      batch.map(async ({ path, call }) => {
        const reply = await gateway.call(path, call);
        const shown = `${call.method} ${path.slice(0, 200)}`;
        // The checkout refuses nothing that the gateway lets through, but knows no session that was made up.
        const madeUpSession = path.startsWith('/top-up/complete') && reply.status === 502;
        assert.ok(
          reply.status < 500 || madeUpSession,
          `${shown} answered ${reply.status}: ${reply.text.slice(0, 500)}`,
        );
        const key = `${path.split('?')[0]?.slice(0, 20)} ${reply.status}`;
        seen.set(key, (seen.get(key) ?? 0) + 1);
      }),
    );
  }
  for (const served of ['/tts 200', '/tts 400', '/tts 402', '/top-up 303']) {
    assert.ok((seen.get(served) ?? 0) > 0, `the requests never led to ${served}`);
  }
  assert.deepEqual(await audit(gateway.db), []);
});

const given = (values: Record<string, string | undefined>): [string, string][] =>
  Object.entries(values).filter((entry): entry is [string, string] => entry[1] !== undefined);

function* batches<T>(items: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < items.length; at += PARALLEL) yield items.slice(at, at + PARALLEL);
}
