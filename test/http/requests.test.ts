import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import Fastify from 'fastify';
import { before, t, test } from 'tap';
import { parse } from 'yaml';
import { type Route, routes } from '../../src/contract/routes.ts';
import type { Validator } from '../../src/contract/validators.js';
import { EdgeLimiter } from '../../src/http/plugins/edge-limiter.ts';
import { type RateLimitParts, RateLimits } from '../../src/http/plugins/rate-limits.ts';
import { type Location, violation } from '../../src/http/validation.ts';
import { fixture, load } from '../codegen/fixture.ts';
import { type Bench, bench } from '../journeys/card.ts';
import { API_POLICY, EDGE_HEADERS } from '../support/contract.ts';
import { startGateway } from '../support/gateway.ts';
import { projectFile } from '../support/project.ts';
import { exchange } from '../support/raw-http.ts';

let validators: Record<string, Validator>;

before(async () => {
  const document = fixture();
  const [plain, quoted] = [document.components.schemas.Plain, document.components.schemas.Quoted];
  plain.properties.details = { type: 'object', properties: { agent: { type: 'string', maxLength: 3 } } };
  quoted.properties.account = { type: 'string', pattern: '^0x[a-f]+$' };
  [validators] = (await load(t, document, 'validators.js')) as [typeof validators];
});

function violationOf(name: string, location: Location, data: unknown) {
  const validate = validators[name] as Validator;
  assert.equal(validate(data), false);
  return violation(validate.errors ?? [], location);
}

test('a violation names the field, the rule and the fix', async (t) => {
  const cases: [string, Location, unknown, ReturnType<typeof violation>][] = [
    [
      'getNoteQuery',
      'query',
      { text: 'a', speed: '3' },
      {
        code: 'INVALID_SPEED',
        message: 'speed must be a number from 0.5 to 2. You were not charged.',
        details: { field: 'speed', location: 'query', rule: 'maximum', minimum: 0.5, maximum: 2 },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a', speed: '1e0' },
      {
        code: 'INVALID_SPEED',
        message: 'speed must be a number from 0.5 to 2. You were not charged.',
        details: { field: 'speed', location: 'query', rule: 'type', minimum: 0.5, maximum: 2 },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'abcdef' },
      {
        code: 'INVALID_REQUEST',
        message: 'text must be a string of 1 to 5 characters after trimming. Use POST. You were not charged.',
        details: { field: 'text', location: 'query', rule: 'maxLength', minLength: 1, maxLength: 5, hint: 'Use POST.' },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a\ud800' },
      {
        code: 'INVALID_REQUEST',
        message:
          'text must be Unicode text without U+0000 and without unpaired surrogates. Use POST. You were not charged.',
        details: {
          field: 'text',
          location: 'query',
          rule: 'wellFormed',
          minLength: 1,
          maxLength: 5,
          hint: 'Use POST.',
        },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a', count: '0' },
      {
        code: 'INVALID_REQUEST',
        message: 'count must be a whole number above 0. You were not charged.',
        details: { field: 'count', location: 'query', rule: 'exclusiveMinimum', exclusiveMinimum: 0 },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a', kind: 'wide' },
      {
        code: 'INVALID_REQUEST',
        message: 'kind must be one of long, short. You were not charged.',
        details: { field: 'kind', location: 'query', rule: 'enum', allowed: ['long', 'short'] },
      },
    ],
    [
      'getNoteQuery',
      'query',
      {},
      {
        code: 'INVALID_REQUEST',
        message: 'text is required. Use POST. You were not charged.',
        details: { field: 'text', location: 'query', rule: 'required', minLength: 1, maxLength: 5, hint: 'Use POST.' },
      },
    ],
    [
      'getNoteQuery',
      'query',
      { text: 'a', speed: ['1', '2'] },
      {
        code: 'INVALID_REQUEST',
        message: 'speed must be sent once. You were not charged.',
        details: { field: 'speed', location: 'query', rule: 'once' },
      },
    ],
    [
      'getNoteHeaders',
      'header',
      { 'x-key': '123456789' },
      {
        code: 'INVALID_REQUEST',
        message: 'x-key must be a string of at most 8 characters. You were not charged.',
        details: { field: 'x-key', location: 'header', rule: 'maxLength', maxLength: 8 },
      },
    ],
    [
      'getNoteParams',
      'path',
      { noteId: '' },
      {
        code: 'INVALID_REQUEST',
        message: 'noteId must be a string of at least 1 character. You were not charged.',
        details: { field: 'noteId', location: 'path', rule: 'minLength', minLength: 1 },
      },
    ],
    [
      'createNoteTextBody',
      'body',
      ' ',
      {
        code: 'INVALID_REQUEST',
        message: 'body must be a string of at least 1 character after trimming. You were not charged.',
        details: { field: 'body', location: 'body', rule: 'minLength', minLength: 1 },
      },
    ],
  ];
  for (const [name, location, data, expected] of cases) {
    t.test(expected.message, async (t) => t.strictSame(violationOf(name, location, data), expected));
  }
});

test('the closest of several alternatives determines the violation', async (t) => {
  const cases: [unknown, string, string, string][] = [
    [{}, 'text', 'INVALID_REQUEST', 'text or quoteToken is required. You were not charged.'],
    [
      { text: 5 },
      'text',
      'INVALID_REQUEST',
      'text must be a string of 1 to 10 characters after trimming. You were not charged.',
    ],
    [
      { text: 'a'.repeat(11) },
      'text',
      'TEXT_TOO_LONG',
      'text must be a string of 1 to 10 characters after trimming. You were not charged.',
    ],
    [
      { text: 'a', speed: 3 },
      'speed',
      'INVALID_REQUEST',
      'speed must be a number from 0.5 to 2. You were not charged.',
    ],
    [
      { quoteToken: '' },
      'quoteToken',
      'INVALID_REQUEST',
      'quoteToken must be a string of 1 to 20 characters. You were not charged.',
    ],
    [
      { quoteToken: 'a', account: '0X' },
      'account',
      'INVALID_REQUEST',
      'account must be a string that matches ^0x[a-f]+$. You were not charged.',
    ],
    [
      { text: 'a', details: { agent: 'long' } },
      'details.agent',
      'INVALID_REQUEST',
      'details.agent must be a string of at most 3 characters. You were not charged.',
    ],
    [{ text: 'a', details: [] }, 'details', 'INVALID_REQUEST', 'details must be an object. You were not charged.'],
    [[], 'body', 'INVALID_REQUEST', 'body must be an object. You were not charged.'],
  ];
  for (const [body, field, code, message] of cases) {
    t.test(message, async (t) => {
      const found = violationOf('createNoteJsonBody', 'body', body);
      t.strictSame([found.details.field, found.code, found.message], [field, code, message]);
    });
  }
});

test('R40: a violation never repeats the value', async (t) => {
  const secret = 'correct horse battery staple';
  for (const data of [
    { text: secret },
    { text: 'a', speed: secret },
    { text: 'a', kind: secret },
    { text: 'a', flag: secret },
  ]) {
    t.notMatch(JSON.stringify(violationOf('getNoteQuery', 'query', data)), /horse/);
  }
});

const json = (value: unknown): string => JSON.stringify(value);

async function post({ gateway }: Bench, account: string, body: string | Buffer, type: string | undefined, query = '') {
  const headers = { 'x-credit-account': account, ...(type !== undefined && { 'content-type': type }) };
  return gateway.call(`/tts${query}`, { method: 'POST', headers, body });
}

test('R70: a JSON request labelled as text is refused and not charged', async (t) => {
  const scene = await bench(t);
  const account = await scene.gateway.fund(500);
  const bodies: Record<string, string | Buffer> = {
    'a request of this service': json({ text: 'Hello world' }),
    'all of its members': json({ model: 'provider-a/tts-1', voice: 'provider-a_alloy', speed: 1, text: 'Hello world' }),
    "a request of OpenAI's API": json({ model: 'tts-1', input: 'Hello world', voice: 'alloy' }),
    'an empty text': json({ text: '' }),
    'with indentation': JSON.stringify({ text: 'Hello world' }, null, 2),
    'with space around it': `\r\n\t ${json({ text: 'Hello world' })}\n`,
    'with a byte order mark': `\ufeff${json({ text: 'Hello world' })}`,
    'with a byte order mark between spaces': ` \ufeff ${json({ text: 'Hello world' })}`,
    'with escaped characters': '{"\\u0074ext":"Hello world"}',
  };
  for (const [name, body] of Object.entries(bodies)) {
    for (const type of ['text/plain', 'text/plain;charset=UTF-8', 'Text/Plain; charset="utf-8"']) {
      for (const query of ['', '?async=true', '?voice=provider-a_nova&speed=1.5']) {
        const { status, json: answer } = await post(scene, account, body, type, query);
        const { code, message, details } = answer.error;
        t.strictSame([status, code, details.field], [400, 'INVALID_REQUEST', 'content-type'], `${name}, ${type}`);
        t.match(message, /content-type: application\/json/);
      }
    }
  }
  t.equal(scene.upstream.requests.length, 0);
  t.equal(await scene.gateway.balance(account), 5_000_000n);
});

test('R70: JSON without the JSON content type is 415', async (t) => {
  const scene = await bench(t);
  const account = await scene.gateway.fund(500);
  for (const type of [undefined, '', 'application/x-www-form-urlencoded', 'application/octet-stream', 'text/json']) {
    const { status, json: answer } = await post(scene, account, json({ text: 'Hello world' }), type);
    assert.deepEqual([status, answer.error.code], [415, 'UNSUPPORTED_CONTENT_TYPE'], type);
  }
  t.equal(await scene.gateway.balance(account), 5_000_000n);
});

test('R70: other texts with braces and quotes are spoken', async (t) => {
  const scene = await bench(t);
  const account = await scene.gateway.fund(500);
  const texts = [
    '{text}',
    '{"text":"Hello world"',
    '{"text":"Hello world"} is what the client sent.',
    '{"text":1}',
    '{"greeting":"Hello world"}',
    '[{"text":"Hello world"}]',
    '"Hello world"',
    'null',
    '{}',
  ];
  for (const text of texts) {
    t.equal((await post(scene, account, text, 'text/plain')).status, 200, text);
    t.equal(scene.upstream.requests.at(-1)?.body?.input, text);
  }
});

const ON_EVERY_ANSWER = { ...EDGE_HEADERS, 'content-security-policy': API_POLICY };

const ON_PREFLIGHTS = {
  'access-control-allow-headers':
    'content-type, accept, range, if-range, if-none-match, idempotency-key, x-credit-account, x-credit-max-amount, payment-signature, x-x402-account, ' +
    'x-x402-nonce, x-x402-expiry, x-x402-max-amount, x-x402-signature, access-control-expose-headers',
  'access-control-allow-methods': 'GET, HEAD, POST, OPTIONS',
  'access-control-max-age': '86400',
};

/** Headers of the transport and of the answer at hand. */
const OWN = ['allow', 'connection', 'content-length', 'content-type', 'date', 'keep-alive', 'x-trace-id'];

test('every response has the same common headers', async (t) => {
  const { url } = await startGateway(t);
  const close = 'host: a\r\nconnection: close\r\n';
  const cases: [name: string, bytes: string, more: object][] = [
    ['an operation', `GET /tts/models HTTP/1.1\r\n${close}\r\n`, {}],
    ['an unknown path', `GET /nowhere HTTP/1.1\r\n${close}\r\n`, {}],
    ['a path that the router cannot parse', `GET /%zz HTTP/1.1\r\n${close}\r\n`, {}],
    ['an expectation, refused before the framework', `GET / HTTP/1.1\r\n${close}expect: wonders\r\n\r\n`, {}],
    ['CONNECT, refused before the framework', `CONNECT a:1 HTTP/1.1\r\n${close}\r\n`, {}],
    ['invalid HTTP', 'GARBAGE\r\n\r\n', {}],
    ['OPTIONS', `OPTIONS /tts HTTP/1.1\r\n${close}\r\n`, ON_PREFLIGHTS],
    [
      'a preflight',
      `OPTIONS /tts HTTP/1.1\r\n${close}origin: https://a.example\r\naccess-control-request-method: POST\r\n\r\n`,
      ON_PREFLIGHTS,
    ],
  ];
  for (const [name, bytes, more] of cases) {
    await t.test(name, async (t) => {
      const [answer] = await exchange(url, bytes);
      const headers = [...(answer?.headers ?? [])].filter(([field]) => !OWN.includes(field));
      t.strictSame(Object.fromEntries(headers), { ...ON_EVERY_ANSWER, ...more });
    });
  }
});

test('pages of other origins may send every declared request header', async (t) => {
  const { paths, components } = parse(await readFile(projectFile('openapi.yaml'), 'utf8'));
  // The card processor sends its own header, not a page.
  const { '/webhooks/stripe': _, ...called } = paths;
  const declared = [...JSON.stringify([called, components.parameters]).matchAll(/"name":"([\w-]+)","in":"header"/g)];
  const names = new Set(declared.map(([, name]) => (name as string).toLowerCase()));
  t.ok(names.size > 5);
  const allowed = ON_PREFLIGHTS['access-control-allow-headers'].split(', ');
  t.strictSame(
    [...names].filter((name) => !allowed.includes(name)),
    [],
  );
});

const SPEECH = { json: { text: 'Hello world' }, method: 'POST' };
const REPEATED: [path: string, name: string, call: object][] = [
  ['/tts?text=Hello', 'x-credit-account', {}],
  ['/tts', 'x-credit-account', SPEECH],
  ['/tts', 'x-credit-max-amount', SPEECH],
  ['/tts?async=true', 'idempotency-key', SPEECH],
  ['/x402/tts', 'payment-signature', SPEECH],
  ['/x402/tts', 'x-x402-account', SPEECH],
  ['/x402/tts?text=Hello', 'x-x402-nonce', {}],
  ['/x402/tts', 'x-x402-expiry', SPEECH],
  ['/x402/tts', 'x-x402-max-amount', SPEECH],
  ['/x402/tts', 'x-x402-signature', SPEECH],
  ['/x402/deposit', 'payment-signature', { method: 'POST', json: { amountMicroUsd: 100_000 } }],
  [`/x402/accounts/0x${'1'.repeat(40)}`, 'x-x402-signature', {}],
];

test('a repeated single-value header is 400 and named, even with equal values', async (t) => {
  const gateway = await startGateway(t);
  for (const [path, name, call] of REPEATED) {
    for (const values of [
      ['1', '2'],
      ['1', '1'],
      ['1', ''],
    ]) {
      const reply = await gateway.call(path, { ...call, headers: { [name]: values } });
      t.strictSame([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], `${path} ${name}`);
      t.strictSame(reply.json.error.details, { field: name, rule: 'once' });
    }
  }
});

type Terms = Route['rateLimits'];

const CREDENTIAL = { 'x-x402-signature': '0x' };
const UNLESS_VERIFIED: Terms = { edge: 'unless-verified', credential: 'x-x402-signature' };

/** An edge that admits one request a minute to an operation on these terms, and tells what came of each. */
async function startEdge<T>(terms: Terms, serve: (rateLimits: RateLimits) => Promise<T>) {
  const app = Fastify();
  const parts = { limiter: await EdgeLimiter.on(app, 1), metrics: { rateLimitRefused() {} } };
  const contract = { ...(routes[0] as Route), rateLimits: terms };
  app.get('/', { config: { contract } }, async (request, reply) => {
    const entered = await RateLimits.enter(parts as unknown as RateLimitParts, request, reply);
    if (!(entered instanceof RateLimits)) return { refused: entered.body.error.details?.scope };
    try {
      return { served: await serve(entered) };
    } catch (error) {
      return { failed: (error as Error).message };
    }
  });
  return async (headers = {}) => (await app.inject({ url: '/', headers })).json();
}

const proves = (proof: () => Promise<boolean>) => async (rateLimits: RateLimits) =>
  (await rateLimits.requireCredential(proof)) ? 'refused' : 'admitted';

test('a credential is verified only above the edge limit, if the contract says so', async (t) => {
  let asked = 0;
  const verified = proves(async () => {
    asked += 1;
    return true;
  });
  const send = await startEdge(UNLESS_VERIFIED, verified);
  t.strictSame([await send(CREDENTIAL), asked], [{ served: 'admitted' }, 0]);
  t.strictSame([await send(CREDENTIAL), asked], [{ served: 'admitted' }, 1]);
  t.strictSame([await send(), asked], [{ refused: 'edge' }, 1]);
  const always = await startEdge({ edge: 'always' }, verified);
  t.strictSame([await always(CREDENTIAL), await always(CREDENTIAL)], [{ served: 'admitted' }, { refused: 'edge' }]);
  t.equal(asked, 1);
});

test('a failed credential counts against its client, an unverifiable one does not', async (t) => {
  let proof = async (): Promise<boolean> => {
    throw new Error('the database is away');
  };
  const send = await startEdge(UNLESS_VERIFIED, (rateLimits) => proves(proof)(rateLimits));
  t.strictSame(await send(CREDENTIAL), { served: 'admitted' });
  for (let count = 0; count < 10; count += 1) {
    t.strictSame(await send(CREDENTIAL), { failed: 'the database is away' });
  }
  proof = async () => false;
  t.strictSame(await send(CREDENTIAL), { served: 'refused' });
  proof = async () => true;
  t.strictSame(await send(CREDENTIAL), { refused: 'edge' });
});

test('a verified request is not counted where the contract says so', async (t) => {
  const verify = async (rateLimits: RateLimits) => rateLimits.uncountVerified();
  const spared = await startEdge(UNLESS_VERIFIED, verify);
  t.strictSame([await spared(), await spared(), await spared()], [{}, {}, {}]);
  const counted = await startEdge({ edge: 'always' }, verify);
  t.strictSame([await counted(), await counted()], [{}, { refused: 'edge' }]);
});

test('an operation takes no slot that the contract does not declare', async (t) => {
  for (const [terms, take, reason] of [
    [{ edge: 'always' }, (rateLimits) => rateLimits.take('request'), 'request'],
    [
      { edge: 'always', window: { by: 'ip', when: ['payment'] } },
      (rateLimits) => rateLimits.take('request'),
      'request',
    ],
    [
      { edge: 'always', window: { by: 'ip', when: ['payment'] } },
      (rateLimits) => rateLimits.takeForFailedCredential(),
      'failed-credential',
    ],
    [
      { edge: 'always', window: { by: 'ip', when: ['request'] } },
      (rateLimits) => rateLimits.attempt(),
      'failed-payment',
    ],
  ] as [Terms, (rateLimits: RateLimits) => Promise<unknown>, string][]) {
    const send = await startEdge(terms, take);
    t.strictSame(await send(), {
      failed: `x-rate-limits of this operation does not name ${reason}, which needs a slot`,
    });
  }
});
