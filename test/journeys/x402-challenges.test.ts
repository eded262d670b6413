import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { validatePaymentRequiredDetailed } from '@agentcash/discovery';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { t, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { catalogFile } from '../support/catalog-file.ts';
import { testChain, wallet } from '../support/chain.ts';
import { DEPOSIT_PATH, depositOf, mineSteadily, paymentStates } from '../support/deposit.ts';
import { type Call, type Gateway, startGateway } from '../support/gateway.ts';
import { projectFile } from '../support/project.ts';
import {
  challengeOf,
  decodeHeader,
  HELLO,
  QUOTE_SECRET,
  sign,
  startX402Gateway,
  withPayment,
} from '../support/x402.ts';

const { chain, skip } = await testChain();
const PROBED = { X402_PROBE_ANSWER: '402' };
const [gateway, probing] = skip
  ? ([] as never)
  : [await startX402Gateway(t, chain), await startX402Gateway(t, chain, PROBED)];
const PATH = '/x402/tts';
const BARE: readonly [name: string, path: string, call: Call][] = [
  ['GET', PATH, {}],
  ['POST', PATH, { method: 'POST' }],
  ['deposit', DEPOSIT_PATH, depositOf(20_000_000)],
];

/** The request that the discovery extension of a challenge shows, by nothing but what the extension says. */
function exampleOf({ resource, extensions }: Challenge): { path: string; call: Call } {
  const { method, queryParams, body } = extensions.bazaar.info.input;
  const url = new URL(resource.url);
  for (const [name, value] of Object.entries(queryParams ?? {})) url.searchParams.set(name, value);
  return { path: url.pathname + url.search, call: { method, ...(body && { json: body }) } };
}

interface Challenge {
  readonly resource: { readonly url: string };
  readonly accepts: readonly { readonly amount: string }[];
  readonly extensions: { readonly bazaar: { readonly info: Info; readonly schema: object } };
}

interface Info {
  readonly input: { readonly method: string; readonly queryParams?: Record<string, string>; readonly body?: object };
}

test('the example in each challenge can be paid as it is', { skip }, async (t) => {
  mineSteadily(t, chain);
  for (const [name, path, bare] of BARE) {
    const probed = decodeHeader((await probing.call(path, bare)).headers.get('payment-required'));
    const { info, schema } = probed.extensions.bazaar;
    const validate = new Ajv2020().compile(schema);
    t.ok(validate(info), JSON.stringify(validate.errors));
    const example = exampleOf(probed);
    const challenge = decodeHeader((await probing.call(example.path, example.call)).headers.get('payment-required'));
    if (path === PATH) t.strictSame(challenge.accepts, probed.accepts, 'the probe gets the challenge of the example');
    const payer = await wallet(chain.client, BigInt(challenge.accepts[0].amount));
    const reply = await probing.call(example.path, withPayment(example.call, await sign(payer, challenge)));
    t.equal(reply.status, 200, `${name}: ${reply.text}`);
    t.equal(await usdcBalance(chain.client, payer.address), 0n, 'it was paid');
    t.equal(reply.headers.get('content-type')?.split(';')[0], challenge.resource.mimeType);
    if (path === DEPOSIT_PATH) t.equal(reply.json.creditedMicroUsd, Number(challenge.accepts[0].amount));
    else t.ok(reply.bytes.length > 0);
  }
});

test("R27: the body repeats the challenge's members beside the error", { skip }, async (t) => {
  const cheaper = await sign(await wallet(chain.client, 10_000n), await challengeOf(probing, `${PATH}?text=Hi`, {}));
  const asked: readonly (readonly [name: string, path: string, call: Call])[] = [
    ...BARE,
    ['a request without payment', `${PATH}?text=Hello`, {}],
    ['a payment of too little', `${PATH}?text=Hello`, withPayment({}, cheaper)],
  ];
  for (const [name, path, call] of asked) {
    const reply = await probing.call(path, call);
    t.equal(reply.status, 402, name);
    t.equal(reply.headers.get('cache-control'), 'no-store', name);
    const challenge = decodeHeader(reply.headers.get('payment-required'));
    const { error, ...members } = reply.json;
    t.strictSame({ ...members, error: error.details.error }, challenge, name);
    const { payment: _, ...details } = error.details;
    t.strictSame(details, challenge, name);
    t.equal(error.code, 'PAYMENT_REQUIRED', name);
    t.strictSame(validatePaymentRequiredDetailed(challenge).issues, [], name);
    // x402's own `error` is a text. The specification's errors are objects, so a reader of the body has to let it be.
    const { issues } = validatePaymentRequiredDetailed(reply.json);
    const told = issues.map(({ code, path }) => [code, path]);
    t.strictSame(told, [['COINBASE_SCHEMA_INVALID', 'error']], name);
  }
});

const JSON_TYPE = { 'content-type': 'application/json' };
/** Requests that say nothing at all, as directories of paid services send them. */
const BARE_PROBES: [name: string, path: string, call: Call][] = [
  ['GET without a query', PATH, {}],
  ['GET with an empty query', `${PATH}?`, {}],
  ['POST without a body', PATH, { method: 'POST' }],
  ['POST with an empty body', PATH, { method: 'POST', headers: JSON_TYPE, body: '' }],
  ['POST with {}', PATH, { method: 'POST', json: {} }],
  ['POST with { }', PATH, { method: 'POST', headers: JSON_TYPE, body: ' {\n} ' }],
];

test('R59: a bare probe is 400 by default', { skip }, async (t) => {
  for (const [name, path, request] of BARE_PROBES) {
    const reply = await gateway.call(path, request);
    t.equal(reply.status, 400, name);
    t.equal(reply.json.error.code, name === 'POST with an empty body' ? 'INVALID_JSON' : 'INVALID_REQUEST', name);
  }
});

test('R59: with X402_PROBE_ANSWER=402 a bare probe gets the discovery challenge', { skip }, async (t) => {
  const { call } = probing;
  for (const [name, path, request] of BARE_PROBES) {
    const reply = await call(path, request);
    t.equal(reply.status, 402, name);
    t.equal(reply.headers.get('cache-control'), 'no-store');
    const example = await (request.method === 'POST' ? call(PATH, HELLO) : call(`${PATH}?text=Hello+world`));
    const { error, ...challenge } = reply.json.error.details;
    const { error: _, ...expected } = example.json.error.details;
    t.strictSame(challenge, expected, name);
    t.match(error, /\btext\b/, 'it names the missing field');
    t.strictSame(decodeHeader(reply.headers.get('payment-required')), reply.json.error.details);
  }
});

test('R59: a request with any content is not a probe and is refused as usual', { skip }, async (t) => {
  const { call } = probing;
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
  for (const [name, path, request, status] of cases) t.equal((await call(path, request)).status, status, name);
});

test('R59: a probe without the x402 settings is CONFIG_ERROR', async (t) => {
  const { call } = await startGateway(t, { ...PROBED, X402_RPC_URL: '' });
  t.equal((await call(PATH)).json.error.code, 'CONFIG_ERROR');
});

test('R59: a paid bare request is 400 before any reservation', { skip }, async (t) => {
  const payer = await wallet(chain.client, 10_000n);
  const before = await paymentStates(probing);
  for (const bare of [{}, { method: 'POST', json: {} }]) {
    const paid = withPayment(bare, await sign(payer, await challengeOf(probing, PATH, bare)));
    const reply = await probing.call(PATH, paid);
    t.strictSame([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST']);
  }
  t.strictSame([await paymentStates(probing), await usdcBalance(chain.client, payer.address)], [before, 10_000n]);
});

const TEXT = 'Hello world';
const DIGEST = createHash('sha256').update(TEXT).digest('hex');
const post = (json: unknown) => ({ method: 'POST', json });
const quote = (gateway: Gateway, body: object) => gateway.call('/x402/tts/quote', post(body));
const plain = { textLength: TEXT.length, textSha256: DIGEST };

test('a quote token alone gets the challenge, and the text is paid at the quoted price', { skip }, async (t) => {
  const before = await gateway.revenue();
  const { json } = await quote(gateway, {
    ...plain,
    textSha256: DIGEST.toUpperCase(),
    voice: 'provider-a_nova',
    speed: 1.25,
  });
  t.equal(json.textSha256, DIGEST);
  t.strictSame([json.amountMicroUsd, json.amountUsd, json.payTo], [198, '0.000198', gateway.payTo]);
  t.strictSame([json.paymentEndpoint, Date.parse(json.expiresAt) - Date.parse(json.issuedAt)], ['/x402/tts', 300_000]);
  const challenge = await challengeOf(gateway, '/x402/tts', post({ quoteToken: json.quoteToken }));
  t.equal(challenge.accepts[0]?.amount, '198');
  const payload = await sign(await wallet(chain.client, 1000n), challenge);
  const withoutText = await gateway.call('/x402/tts', withPayment(post({ quoteToken: json.quoteToken }), payload));
  t.equal(withoutText.json.error.code, 'INVALID_REQUEST');
  const call = withPayment(post({ quoteToken: json.quoteToken, text: ` ${TEXT}\n` }), payload);
  t.equal((await gateway.call('/x402/tts', call)).status, 200);
  const { input, speed } = gateway.upstream.requests.at(-1)?.body ?? {};
  t.strictSame([input, speed, (await gateway.revenue()) - before], [TEXT, 1.25, 198n]);
  t.strictSame(await audit(gateway.db), []);
});

test('R29: a request that differs from its quote is QUOTE_BODY_MISMATCH', { skip }, async (t) => {
  const calls = gateway.facilitator.calls.length;
  const { quoteToken } = (await quote(gateway, plain)).json;
  const payload = await sign(
    await wallet(chain.client, 1000n),
    await challengeOf(gateway, '/x402/tts', post({ quoteToken })),
  );
  for (const change of [
    { text: 'Hello wurld' },
    { text: 'Hello' },
    { model: 'provider-a/tts-1-hd' },
    { voice: 'provider-a_nova' },
    { speed: 1.5 },
  ]) {
    const body = { quoteToken, text: TEXT, ...change };
    for (const call of [post(body), withPayment(post(body), payload)]) {
      const reply = await gateway.call('/x402/tts', call);
      t.strictSame([reply.status, reply.json.error.code], [400, 'QUOTE_BODY_MISMATCH']);
    }
  }
  const same = { quoteToken, text: TEXT, model: 'provider-a/tts-1', speed: 1 };
  t.equal((await gateway.call('/x402/tts', post(same))).status, 402);
  const tooLong = await gateway.call('/x402/tts', post({ quoteToken, text: 'x'.repeat(4097) }));
  t.strictSame([tooLong.status, tooLong.json.error.code], [413, 'TEXT_TOO_LONG']);
  const forged = await gateway.call('/x402/tts', post({ quoteToken: `${quoteToken}x`, text: TEXT }));
  t.strictSame([forged.status, forged.json.error.code], [400, 'INVALID_QUOTE']);
  const empty = await gateway.call('/x402/tts', post({ quoteToken: '', text: TEXT }));
  t.strictSame([empty.status, empty.json.error.code], [400, 'INVALID_REQUEST']);
  t.equal(gateway.facilitator.calls.length, calls);
});

test('an expired quote buys nothing, but its earlier payment is still replayed', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { QUOTE_TTL_SECONDS: '3' });
  const { quoteToken, expiresAt } = (await quote(gateway, plain)).json;
  const body = post({ quoteToken, text: TEXT });
  const payer = await wallet(chain.client, 1000n);
  const challenge = await challengeOf(gateway, '/x402/tts', body);
  const paid = withPayment(body, await sign(payer, challenge));
  const late = withPayment(body, await sign(payer, challenge));
  t.equal((await gateway.call('/x402/tts', paid)).status, 200);
  await sleep(Math.max(0, Date.parse(expiresAt) - Date.now()) + 1);
  for (const call of [body, late]) {
    const reply = await gateway.call('/x402/tts', call);
    t.strictSame([reply.status, reply.json.error.code], [400, 'QUOTE_EXPIRED']);
  }
  const replay = await gateway.call('/x402/tts', paid);
  t.strictSame([replay.status, replay.headers.get('x-idempotent-replay')], [200, 'true']);
  t.equal(await gateway.revenue(), 198n);
});

test('R29: a quote stays valid after a price change or while its payee retires', { skip }, async (t) => {
  const earned = await gateway.revenue();
  const { quoteToken } = (await quote(gateway, plain)).json;
  const built = JSON.parse(await readFile(projectFile('src/config/catalog-default.json'), 'utf8'));
  for (const model of built.models) model.baseRatePicoUsdPerCharacter *= 2;
  const other = '0xcA11bde05977b3631167028862bE2a173976CA11';
  const after = await startX402Gateway(t, chain, {
    CATALOG_FILE: await catalogFile(t, built),
    X402_PAY_TO: `${other},${gateway.payTo}:retiring`,
    QUOTE_SECRET: `a-newer-quote-secret-of-32-bytes-or-more,${QUOTE_SECRET}`,
  });
  const body = post({ quoteToken, text: TEXT });
  const challenge = await challengeOf(after, '/x402/tts', body);
  t.strictSame([challenge.accepts[0]?.amount, challenge.accepts[0]?.payTo], ['198', gateway.payTo]);
  const payload = await sign(await wallet(chain.client, 1000n), challenge);
  t.equal((await after.call('/x402/tts', withPayment(body, payload))).status, 200);
  t.equal((await gateway.revenue()) - earned, 198n);
  const unquoted = await challengeOf(after, '/x402/tts', post({ text: TEXT }));
  t.strictSame([unquoted.accepts[0]?.amount, unquoted.accepts[0]?.payTo], ['396', other]);
  const foreign = await startX402Gateway(t, chain, { QUOTE_SECRET: 'x'.repeat(32) });
  t.equal((await foreign.call('/x402/tts', body)).json.error.code, 'INVALID_QUOTE');
});

test('R8: every violation in a quote request is 400 with its code', { skip }, async (t) => {
  const cases: [object, string][] = [
    [{}, 'INVALID_REQUEST'],
    [{ ...plain, textLength: 0 }, 'INVALID_REQUEST'],
    [{ ...plain, textLength: 1.5 }, 'INVALID_REQUEST'],
    [{ ...plain, textLength: '11' }, 'INVALID_REQUEST'],
    [{ ...plain, textLength: 4097 }, 'TEXT_TOO_LONG'],
    [{ ...plain, textSha256: 'abc' }, 'INVALID_REQUEST'],
    [{ ...plain, model: 'x' }, 'UNKNOWN_TTS_MODEL'],
    [{ ...plain, model: '' }, 'UNKNOWN_TTS_MODEL'],
    [{ ...plain, voice: 'alloy' }, 'INVALID_VOICE'],
    [{ ...plain, speed: 2.5 }, 'INVALID_SPEED'],
  ];
  for (const [body, code] of cases) {
    const reply = await quote(gateway, body);
    t.strictSame([reply.status, reply.json.error.code], [400, code], JSON.stringify(body));
  }
  t.equal((await quote(gateway, { ...plain, textLength: 4096 })).status, 200);
});

test('without QUOTE_SECRET quotes answer 503 CONFIG_ERROR', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { QUOTE_SECRET: '' });
  for (const reply of [await quote(gateway, plain), await gateway.call('/x402/tts', post({ quoteToken: 'x' }))])
    t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  t.equal(
    decodeHeader((await gateway.call('/x402/tts', post({ text: TEXT }))).headers.get('payment-required')).x402Version,
    2,
  );
});

const METADATA = '/.well-known/x402-service-metadata';

test('the prepaid member of the challenge matches the specification', async (t) => {
  const gateway = await startGateway(t, { SERVICE_NAME: 'example', BASE_URL: 'https://speech.example' });
  t.strictSame((await gateway.call(METADATA)).json.payload.prepaid, {
    supported: true,
    depositEndpoint: 'https://speech.example/x402/deposit',
    balanceEndpoint: 'https://speech.example/x402/accounts/{address}',
    accountIdentity: 'payer_evm_address',
    authentication: {
      scheme: 'eip712',
      primaryType: 'PrepaidRequest',
      domainName: 'example-Prepaid',
      domainVersion: '1',
      chainId: 8453,
      headers: ['x-x402-account', 'x-x402-nonce', 'x-x402-expiry', 'x-x402-max-amount', 'x-x402-signature'],
      signatureTtlSeconds: 120,
      smartAccountSignaturesSupported: false,
    },
    minDepositMicroUsd: 100_000,
    maxDepositMicroUsd: 100_000_000,
    withdrawable: false,
    settlementPerRequest: false,
  });
});
