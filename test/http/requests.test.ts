import assert from 'node:assert/strict';
import Fastify from 'fastify';
import { before, t, test } from 'tap';
import { type Route, routes } from '../../src/contract/routes.ts';
import type { Validator } from '../../src/contract/validators.js';
import { EdgeLimiter } from '../../src/http/plugins/edge-limiter.ts';
import { type RateLimitParts, RateLimits } from '../../src/http/plugins/rate-limits.ts';
import { type Location, violation } from '../../src/http/validation.ts';
import { fixture, load } from '../codegen/fixture.ts';
import { type Bench, bench } from '../journeys/card.ts';
import { startGateway } from '../support/gateway.ts';

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

const TEXT_BODY = 'createNoteTextBody';
const JSON_BODY = 'createNoteJsonBody';

/** The validator and what it is given, and of the violation: code, field, rule and the deciding words. */
const CASES: [name: string, at: Location, data: unknown, code: string, field: string, rule: string, says: RegExp][] = [
  ['getNoteQuery', 'query', { text: 'a', speed: '3' }, 'INVALID_SPEED', 'speed', 'maximum', /number from 0\.5 to 2/],
  ['getNoteQuery', 'query', { text: 'a', speed: '1e0' }, 'INVALID_SPEED', 'speed', 'type', /number from 0\.5 to 2/],
  ['getNoteQuery', 'query', { text: 'a\ud800' }, 'INVALID_REQUEST', 'text', 'wellFormed', /unpaired surrogates/],
  ['getNoteQuery', 'query', { text: 'a', count: '0' }, 'INVALID_REQUEST', 'count', 'exclusiveMinimum', /above 0/],
  ['getNoteQuery', 'query', { text: 'a', kind: 'wide' }, 'INVALID_REQUEST', 'kind', 'enum', /one of long, short/],
  ['getNoteQuery', 'query', {}, 'INVALID_REQUEST', 'text', 'required', /is required\. Use POST/],
  ['getNoteQuery', 'query', { text: 'a', speed: ['1', '2'] }, 'INVALID_REQUEST', 'speed', 'once', /sent once/],
  ['getNoteHeaders', 'header', { 'x-key': '123456789' }, 'INVALID_REQUEST', 'x-key', 'maxLength', /at most 8 char/],
  ['getNoteParams', 'path', { noteId: '' }, 'INVALID_REQUEST', 'noteId', 'minLength', /at least 1 character\./],
  [TEXT_BODY, 'body', ' ', 'INVALID_REQUEST', 'body', 'minLength', /at least 1 character after trimming/],
  // The closest of several alternatives decides.
  [JSON_BODY, 'body', {}, 'INVALID_REQUEST', 'text', 'required', /^text or quoteToken is required/],
  [JSON_BODY, 'body', { text: 5 }, 'INVALID_REQUEST', 'text', 'type', /1 to 10 characters after trimming/],
  [JSON_BODY, 'body', { text: 'a'.repeat(11) }, 'TEXT_TOO_LONG', 'text', 'maxLength', /1 to 10 characters after/],
  [JSON_BODY, 'body', { text: 'a', speed: 3 }, 'INVALID_REQUEST', 'speed', 'maximum', /number from 0\.5 to 2/],
  [JSON_BODY, 'body', { quoteToken: '' }, 'INVALID_REQUEST', 'quoteToken', 'minLength', /1 to 20 characters/],
  [JSON_BODY, 'body', { quoteToken: 'a', account: '0X' }, 'INVALID_REQUEST', 'account', 'pattern', /\^0x\[a-f\]\+\$/],
  [
    JSON_BODY,
    'body',
    { text: 'a', details: { agent: 'long' } },
    'INVALID_REQUEST',
    'details.agent',
    'maxLength',
    /at most 3/,
  ],
  [JSON_BODY, 'body', { text: 'a', details: [] }, 'INVALID_REQUEST', 'details', 'type', /must be an object/],
  [JSON_BODY, 'body', [], 'INVALID_REQUEST', 'body', 'type', /must be an object/],
];

test('a violation names the field, the rule and the fix', async (t) => {
  for (const [name, location, data, code, field, rule, says] of CASES) {
    const { details, message, ...found } = violationOf(name, location, data);
    t.strictSame([found.code, details.field, details.rule], [code, field, rule], message);
    t.match(message, says);
    t.match(message, / You were not charged\.$/);
  }
  t.strictSame(violationOf('getNoteQuery', 'query', { text: 'abcdef' }), {
    code: 'INVALID_REQUEST',
    message: 'text must be a string of 1 to 5 characters after trimming. Use POST. You were not charged.',
    details: { field: 'text', location: 'query', rule: 'maxLength', minLength: 1, maxLength: 5, hint: 'Use POST.' },
  });
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
  const refused = async (name: string, body: string | Buffer, type: string, query = '') => {
    const { status, json: answer } = await post(scene, account, body, type, query);
    const { code, message, details } = answer.error;
    t.strictSame([status, code, details.field], [400, 'INVALID_REQUEST', 'content-type'], `${name}, ${type}`);
    t.match(message, /content-type: application\/json/);
  };
  for (const [name, body] of Object.entries(bodies)) await refused(name, body, 'text/plain');
  for (const type of ['text/plain;charset=UTF-8', 'Text/Plain; charset="utf-8"']) {
    for (const query of ['?async=true', '?voice=provider-a_nova&speed=1.5'])
      await refused(query, json({ text: 'Hello world' }), type, query);
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

test('OPTIONS allows the methods and headers of every flow, for a day', async (t) => {
  const { call } = await startGateway(t);
  const preflight = { origin: 'https://a.example', 'access-control-request-method': 'POST' };
  for (const headers of [{}, preflight]) {
    const reply = await call('/tts', { method: 'OPTIONS', headers });
    t.equal(
      reply.headers.get('access-control-allow-headers'),
      'content-type, accept, range, if-range, if-none-match, idempotency-key, x-credit-account, x-credit-max-amount, ' +
        'payment-signature, x-x402-account, x-x402-nonce, x-x402-expiry, x-x402-max-amount, x-x402-signature, ' +
        'access-control-expose-headers',
    );
    t.equal(reply.headers.get('access-control-allow-methods'), 'GET, HEAD, POST, OPTIONS');
    t.equal(reply.headers.get('access-control-max-age'), '86400');
  }
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
      ['1', '1'],
      ['1', ''],
    ]) {
      const reply = await gateway.call(path, { ...call, headers: { [name]: values } });
      t.strictSame([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], `${path} ${name}`);
      t.strictSame(reply.json.error.details, { field: name, rule: 'once' });
    }
  }
});

/** An edge that admits one request a minute, and credentials above it, and tells what came of each. */
async function startEdge(proof: () => Promise<boolean>) {
  const app = Fastify();
  const parts = { limiter: await EdgeLimiter.on(app, 1), metrics: { rateLimitRefused() {} } };
  const rateLimits: Route['rateLimits'] = { edge: 'unless-verified', credential: 'x-x402-signature' };
  const contract = { ...(routes[0] as Route), rateLimits };
  app.get('/', { config: { contract } }, async (request, reply) => {
    const entered = await RateLimits.enter(parts as unknown as RateLimitParts, request, reply);
    if (!(entered instanceof RateLimits)) return { refused: entered.body.error.details?.scope };
    try {
      return { served: (await entered.requireCredential(proof)) ? 'refused' : 'admitted' };
    } catch (error) {
      return { failed: (error as Error).message };
    }
  });
  return async () => (await app.inject({ url: '/', headers: { 'x-x402-signature': '0x' } })).json();
}

test('a failed credential counts against its client, an unverifiable one does not', async (t) => {
  let proof = async (): Promise<boolean> => {
    throw new Error('the database is away');
  };
  const send = await startEdge(() => proof());
  t.strictSame(await send(), { served: 'admitted' }, 'below the limit nothing is verified');
  for (let count = 0; count < 10; count += 1) t.strictSame(await send(), { failed: 'the database is away' });
  proof = async () => true;
  t.strictSame(await send(), { served: 'admitted' });
  proof = async () => false;
  t.strictSame(await send(), { served: 'refused' });
  proof = async () => true;
  t.strictSame(await send(), { refused: 'edge' });
});
