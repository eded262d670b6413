import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { startGateway } from '../support/gateway.ts';
import { longCatalog, longText, secondsOf } from '../support/long-texts.ts';
import { fundedWallet, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { description } from '../support/silent-audio.ts';
import { body, mp3, openAiError, silentMp3, startStubUpstream, testUpstream } from '../support/stub-upstream.ts';
import { toneMp3 } from '../support/tone.ts';
import { until } from '../support/until.ts';

const FUNDS = 5_000_000n;
const RATE = 18n;
const LIMIT = 500;
const BROKEN_OFF = /aborted|ECONNRESET|socket hang up/;

async function start(t: Test, more: Record<string, string> = {}) {
  const upstream = await testUpstream(t);
  const catalog = await longCatalog(t, LIMIT);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, CATALOG_FILE: catalog, ...more });
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  const ask = (text: string) => gateway.call('/tts', { method: 'POST', json: { text }, headers });
  const inputs = () => upstream.requests.map(({ body }) => String(body?.input));
  return { upstream, gateway, account, headers, ask, inputs };
}

test('a streamed text over the limit of a request is spoken in segments, charged once', async (t) => {
  const { upstream, gateway, account, ask, inputs } = await start(t);
  const tone = await toneMp3(440, 24_000, 3);
  const tag = Buffer.from('ID3\x04\0\0\0\0\0\x05.....', 'latin1');
  upstream.mode = body(Buffer.concat([tag, tone, Buffer.from('TAG'.padEnd(128, '.'))]));
  const text = longText(1_900);
  const reply = await ask(text);
  t.equal(reply.status, 200);
  t.ok(inputs().length > 3 && inputs().every((input) => input.length <= LIMIT));
  t.equal(
    inputs()
      .toSorted((a, b) => text.indexOf(a) - text.indexOf(b))
      .join(' '),
    text,
  );
  const seconds = secondsOf(reply.bytes);
  t.ok(seconds > 0, 'begins with a frame, and has only frames');
  t.ok(Math.abs(seconds - inputs().length * secondsOf(tone)) < seconds / 100);
  t.equal(await gateway.balance(account), FUNDS - 1_900n * RATE);
  t.strictSame(await audit(gateway.db), []);
});

test('a segment that fails breaks the stream off, uncharged', async (t) => {
  const { upstream, gateway, account, ask } = await start(t);
  upstream.mode = (request, response) => {
    const isLast = String(request.body?.input).includes('number 40 ');
    (isLast ? openAiError(500) : mp3(20_000))(request, response);
  };
  await assert.rejects(ask(longText(1_900)), BROKEN_OFF);
  await until(async () => (await gateway.balance(account)) === FUNDS);
  await upstream.waitForNoConnection();
  t.strictSame(await audit(gateway.db), []);
});

test('prepaid speech of several segments is one MP3 that one frame describes', async (t) => {
  const gateway = await startPrepaidGateway(t, { CATALOG_FILE: await longCatalog(t, LIMIT) });
  const { sign, balance } = await fundedWallet(gateway, FUNDS);
  const frames = silentMp3(2_400);
  const own = description({ frames: 100, fileBytes: frames.length + 384 });
  gateway.upstream.mode = body(Buffer.concat([own, frames]));
  const reply = await gateway.call(TTS, await sign(TTS, { method: 'POST', json: { text: longText(1_500) } }));
  t.equal(reply.status, 200);
  const segments = gateway.upstream.requests.length;
  t.ok(segments >= 4);
  t.strictSame([reply.bytes.indexOf('Info'), reply.bytes.lastIndexOf('Info')], [21, 21]);
  // Of each segment but the last, one silent frame stands for the delay of the encoder.
  t.equal(reply.bytes.readUInt32BE(29), 100 * segments - (segments - 1));
  t.equal(reply.bytes.readUInt32BE(33), reply.bytes.length);
  t.equal(await balance(), FUNDS - 1_500n * RATE);
});

test('an upstream that fails at a segment is replaced for the whole text, in its own segments', async (t) => {
  const second = await startStubUpstream();
  t.teardown(() => second.close());
  const upstreams = [
    { name: 'default', maxRequestCharacters: LIMIT },
    { name: 'second', maxRequestCharacters: 1_000 },
  ];
  const catalog = await longCatalog(t, LIMIT, { servers: [{ name: 'second', baseUrl: second.url }], upstreams });
  const gateway = await startPrepaidGateway(t, { CATALOG_FILE: catalog });
  const { sign } = await fundedWallet(gateway, FUNDS);
  gateway.upstream.mode = (request, response) => {
    const isLast = String(request.body?.input).includes('number 30 ');
    (isLast ? openAiError(500) : mp3())(request, response);
  };
  const reply = await gateway.call(TTS, await sign(TTS, { method: 'POST', json: { text: longText(1_500) } }));
  t.equal(reply.status, 200);
  t.equal(second.requests.length, 2);
});

test('a word longer than a request is 400 with its place, before anything is held', async (t) => {
  const { gateway, account, headers, inputs } = await start(t);
  const text = `${longText(300)} ${'x'.repeat(501)}`;
  for (const path of ['/tts', '/tts?async=true', TTS]) {
    const call = { method: 'POST', json: { text }, ...(path !== TTS && { headers }) };
    const reply = await gateway.call(path, call);
    t.equal(reply.status, 400, path);
    const { code, details } = reply.json.error;
    t.strictSame(
      [code, details.field, details.rule, details.offset, details.maximum],
      ['INVALID_REQUEST', 'text', 'splittable', 301, LIMIT],
    );
  }
  t.equal(await gateway.balance(account), FUNDS);
  t.strictSame(inputs(), []);
});

test('a body may have the longest text of the catalog in its longest form, and no more', async (t) => {
  const { gateway, headers } = await start(t);
  const account = await gateway.fund(100_000);
  const post = (text: string) => {
    const escaped = [...text].map((character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
    const json = { ...headers, 'x-credit-account': account, 'content-type': 'application/json' };
    return gateway.call('/tts', { method: 'POST', body: `{"text":"${escaped.join('')}"}`, headers: json });
  };
  const accepted = await post(longText(500_000));
  t.equal(accepted.status, 202);
  t.equal(accepted.json.progress.total, 500_000);
  const tooLong = await post(longText(500_001));
  t.strictSame([tooLong.status, tooLong.json.error.code], [413, 'TEXT_TOO_LONG']);
  t.equal(tooLong.json.error.details.maximum, 500_000);
  const tooLarge = await post(longText(502_000));
  t.strictSame([tooLarge.status, tooLarge.json.error.code], [413, 'REQUEST_TOO_LARGE']);
});

test('/x402/tts knows no jobs: it takes less than 20,000 characters', async (t) => {
  const { gateway } = await start(t);
  const reply = await gateway.call(TTS, { method: 'POST', json: { text: longText(20_000) } });
  t.strictSame([reply.status, reply.json.error.code], [413, 'TEXT_TOO_LONG']);
  t.equal(reply.json.error.details.maximum, 19_999);
  t.equal((await gateway.call(TTS, { method: 'POST', json: { text: longText(19_999) } })).status, 402);
  const { payload } = (await gateway.call('/.well-known/x402-service-metadata')).json;
  t.equal(payload.pricing.models[0].maxCharactersPerRequest, 19_999);
  t.equal((await gateway.call('/tts/models')).json.models[0].maxInputCharacters, 500_000);
});
