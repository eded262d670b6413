import assert from 'node:assert/strict';
import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import { type Call, startGateway } from '../support/gateway.ts';
import { challengeOf, decodeHeader, HELLO, sign, startX402Gateway, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();

const PATH = '/x402/tts';
const JSON_TYPE = { 'content-type': 'application/json' };
/** Requests that say nothing at all, as directories of paid services send them. */
const BARE: [name: string, path: string, call: Call][] = [
  ['GET without a query', PATH, {}],
  ['GET with an empty query', `${PATH}?`, {}],
  ['POST without a body', PATH, { method: 'POST' }],
  ['POST with an empty body', PATH, { method: 'POST', headers: JSON_TYPE, body: '' }],
  ['POST with {}', PATH, { method: 'POST', json: {} }],
  ['POST with { }', PATH, { method: 'POST', headers: JSON_TYPE, body: ' {\n} ' }],
];

test('R59: a bare probe is 400 by default', async (t) => {
  const { call } = await startGateway(t);
  for (const [name, path, request] of BARE) {
    const reply = await call(path, request);
    assert.equal(reply.status, 400, name);
    const code = name === 'POST with an empty body' ? 'INVALID_JSON' : 'INVALID_REQUEST';
    assert.equal(reply.json.error.code, code, name);
  }
});

test('R59: with X402_PROBE_ANSWER=402 a bare probe gets the challenge of the discovery example', async (t) => {
  const { call } = await startGateway(t, { X402_PROBE_ANSWER: '402' });
  for (const [name, path, request] of BARE) {
    const reply = await call(path, request);
    assert.equal(reply.status, 402, name);
    assert.equal(reply.headers.get('cache-control'), 'no-store');
    const example = await (request.method === 'POST' ? call(PATH, HELLO) : call(`${PATH}?text=Hello+world`));
    const { error, ...challenge } = reply.json.error.details;
    const { error: _, ...expected } = example.json.error.details;
    assert.deepEqual(challenge, expected, name);
    assert.match(error, /\btext\b/, 'it names the missing field');
    assert.deepEqual(decodeHeader(reply.headers.get('payment-required')), reply.json.error.details);
  }
});

test('R59: whatever says anything is no probe, and is refused as ever', async (t) => {
  const { call } = await startGateway(t, { X402_PROBE_ANSWER: '402' });
  const post = (body: string, headers = {}): Call => ({ method: 'POST', headers: { ...JSON_TYPE, ...headers }, body });
  const cases: [name: string, path: string, call: Call, status: number][] = [
    ['another parameter', `${PATH}?model=provider-a/tts-1`, {}, 400],
    ['a query that nothing declares', `${PATH}?x=1`, {}, 400],
    ['a POST with a query', `${PATH}?x=1`, post('{}'), 400],
    ['an empty text', `${PATH}?text=`, {}, 400],
    ['a member', PATH, post('{"voice":"provider-a_nova"}'), 400],
    ['a member that nothing declares', PATH, post('{"x":1}'), 400],
    ['an array', PATH, post('[]'), 400],
    ['null', PATH, post('null'), 400],
    ['no JSON', PATH, post('{'), 400],
    ['another content type', PATH, { method: 'POST', headers: { 'content-type': 'text/plain' } }, 415],
    ['a header of card credits', PATH, { headers: { 'x-credit-account': 'a' } }, 400],
    ['a header of a prepaid request', PATH, { headers: { 'x-x402-nonce': 'a' } }, 400],
    ['a payment', PATH, post('{}', { 'payment-signature': 'a' }), 400],
    ['HEAD', PATH, { method: 'HEAD' }, 405],
    ['another operation', '/tts', {}, 400],
    ['a deposit', '/x402/deposit', post('{}'), 400],
  ];
  for (const [name, path, request, status] of cases) assert.equal((await call(path, request)).status, status, name);
});

test('R59: a probe promises no more than what is set up', async (t) => {
  const { call } = await startGateway(t, { X402_PROBE_ANSWER: '402', X402_RPC_URL: '' });
  assert.equal((await call(PATH)).json.error.code, 'CONFIG_ERROR');
});

test('R59: a payment of the challenge with the bare request is 400 before anything is reserved', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, { X402_PROBE_ANSWER: '402' });
  const payer = await wallet(chain.client, 10_000n);
  for (const bare of [{}, { method: 'POST', json: {} }]) {
    const paid = withPayment(bare, await sign(payer, await challengeOf(gateway, PATH, bare)));
    const reply = await gateway.call(PATH, paid);
    assert.deepEqual([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST']);
  }
  assert.deepEqual(await gateway.db.selectFrom('x402_payment').select('id').execute(), []);
  assert.equal(gateway.upstream.requests.length, 0);
  assert.equal(await gateway.revenue(), 0n);
});
