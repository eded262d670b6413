import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import type { Gateway } from '../support/gateway.ts';
import { challengeOf, decodeHeader, QUOTE_SECRET, sign, startX402Gateway, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();
const TEXT = 'Hello world';
const DIGEST = createHash('sha256').update(TEXT).digest('hex');

const post = (json: unknown) => ({ method: 'POST', json });
const quote = (gateway: Gateway, body: object) => gateway.call('/x402/tts/quote', post(body));
const plain = { textLength: TEXT.length, textSha256: DIGEST };

test('a quoted request: challenge by token alone, paid with the text, at the quoted price', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { json } = await quote(gateway, {
    ...plain,
    textSha256: DIGEST.toUpperCase(),
    voice: 'provider-a_nova',
    speed: 1.25,
  });
  assert.equal(json.textSha256, DIGEST);
  assert.deepEqual([json.amountMicroUsd, json.amountUsd, json.payTo], [198, '0.000198', gateway.payTo]);
  assert.equal(json.paymentEndpoint, '/x402/tts');
  assert.equal(Date.parse(json.expiresAt) - Date.parse(json.issuedAt), 300_000);

  const challenge = await challengeOf(gateway, '/x402/tts', post({ quoteToken: json.quoteToken }));
  assert.equal(challenge.accepts[0]?.amount, '198');
  const payload = await sign(await wallet(chain.client, 1000n), challenge);
  const withoutText = await gateway.call('/x402/tts', withPayment(post({ quoteToken: json.quoteToken }), payload));
  assert.equal(withoutText.json.error.code, 'INVALID_REQUEST');
  const call = withPayment(post({ quoteToken: json.quoteToken, text: ` ${TEXT}\n` }), payload);
  assert.equal((await gateway.call('/x402/tts', call)).status, 200);
  assert.deepEqual(gateway.upstream.requests[0]?.body?.input, TEXT);
  assert.equal(gateway.upstream.requests[0]?.body?.speed, 1.25);
  assert.equal(await gateway.revenue(), 198n);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R29: what differs from the quote is QUOTE_BODY_MISMATCH, before anything is called', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
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
      assert.deepEqual([reply.status, reply.json.error.code], [400, 'QUOTE_BODY_MISMATCH']);
    }
  }
  const same = { quoteToken, text: TEXT, model: 'provider-a/tts-1', speed: 1 };
  assert.equal((await gateway.call('/x402/tts', post(same))).status, 402);
  const tooLong = await gateway.call('/x402/tts', post({ quoteToken, text: 'x'.repeat(4097) }));
  assert.deepEqual([tooLong.status, tooLong.json.error.code], [413, 'TEXT_TOO_LONG']);
  const forged = await gateway.call('/x402/tts', post({ quoteToken: `${quoteToken}x`, text: TEXT }));
  assert.deepEqual([forged.status, forged.json.error.code], [400, 'INVALID_QUOTE']);
  const empty = await gateway.call('/x402/tts', post({ quoteToken: '', text: TEXT }));
  assert.deepEqual([empty.status, empty.json.error.code], [400, 'INVALID_REQUEST']);
  assert.equal(gateway.facilitator.calls.length, 0);
});

test('an expired quote buys nothing, but what was bought by it is repeated', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { QUOTE_TTL_SECONDS: '3' });
  const { quoteToken, expiresAt } = (await quote(gateway, plain)).json;
  const body = post({ quoteToken, text: TEXT });
  const payer = await wallet(chain.client, 1000n);
  const challenge = await challengeOf(gateway, '/x402/tts', body);
  const paid = withPayment(body, await sign(payer, challenge));
  const late = withPayment(body, await sign(payer, challenge));
  assert.equal((await gateway.call('/x402/tts', paid)).status, 200);
  await sleep(Math.max(0, Date.parse(expiresAt) - Date.now()) + 1);
  for (const call of [body, late]) {
    const reply = await gateway.call('/x402/tts', call);
    assert.deepEqual([reply.status, reply.json.error.code], [400, 'QUOTE_EXPIRED']);
  }
  const replay = await gateway.call('/x402/tts', paid);
  assert.deepEqual([replay.status, replay.headers.get('x-idempotent-replay')], [200, 'true']);
  assert.equal(await gateway.revenue(), 198n);
});

test('R29: a quote is honoured after the price has changed, and after its payee began to retire', {
  skip,
}, async (t) => {
  const before = await startX402Gateway(t, chain);
  const { quoteToken } = (await quote(before, plain)).json;
  const built = JSON.parse(await readFile(new URL('../../src/speech/catalog-default.json', import.meta.url), 'utf8'));
  for (const model of built.models) model.baseRatePicoUsdPerCharacter *= 2;
  const file = join(tmpdir(), `speechgate-catalog-${process.pid}.json`);
  await writeFile(file, JSON.stringify(built));
  t.teardown(() => rm(file, { force: true }));
  const other = '0xcA11bde05977b3631167028862bE2a173976CA11';
  const after = await startX402Gateway(t, chain, {
    CATALOG_FILE: file,
    X402_PAY_TO: `${other},${before.payTo}:retiring`,
    QUOTE_SECRET: `a-newer-quote-secret-of-32-bytes-or-more,${QUOTE_SECRET}`,
  });
  const body = post({ quoteToken, text: TEXT });
  const challenge = await challengeOf(after, '/x402/tts', body);
  assert.deepEqual([challenge.accepts[0]?.amount, challenge.accepts[0]?.payTo], ['198', before.payTo]);
  const payload = await sign(await wallet(chain.client, 1000n), challenge);
  assert.equal((await after.call('/x402/tts', withPayment(body, payload))).status, 200);
  assert.equal(await before.revenue(), 198n);

  const unquoted = await challengeOf(after, '/x402/tts', post({ text: TEXT }));
  assert.deepEqual([unquoted.accepts[0]?.amount, unquoted.accepts[0]?.payTo], ['396', other]);

  const gone = await startX402Gateway(t, chain);
  const reply = await gone.call('/x402/tts', body);
  assert.equal(reply.json.error.code, 'INVALID_QUOTE');
});

test('R8: every violation of a quote request is a 400 with its code', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
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
    assert.deepEqual([reply.status, reply.json.error.code], [400, code], JSON.stringify(body));
  }
  assert.equal((await quote(gateway, { ...plain, textLength: 4096 })).status, 200);
});

test('without QUOTE_SECRET quotes answer 503 CONFIG_ERROR', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { QUOTE_SECRET: '' });
  for (const reply of [await quote(gateway, plain), await gateway.call('/x402/tts', post({ quoteToken: 'x' }))]) {
    assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  }
  assert.equal(
    decodeHeader((await gateway.call('/x402/tts', post({ text: TEXT }))).headers.get('payment-required')).x402Version,
    2,
  );
});
