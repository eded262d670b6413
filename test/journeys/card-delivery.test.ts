import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import * as upstreamModes from '../support/stub-upstream.ts';
import { Drip, type Mode, mp3, silentMp3, wav } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { bench, say } from './card.ts';

test('R9: each upstream fault gives its error and leaves the balance unchanged', async (t) => {
  const { gateway, upstream } = await bench(t, { SPEECH_TIMEOUT_MS: '400' });
  const account = await gateway.fund(500);
  const { empty, fastApiError, garbage, hangBeforeHeaders, html, json, openAiError, redirect } = upstreamModes;
  const { closeBeforeHeaders, resetBeforeHeaders, tooManyRequests } = upstreamModes;
  const cases: [string, Mode, number, string][] = [
    ['an empty body', empty(), 502, 'TTS_UPSTREAM_ERROR'],
    ['a FastAPI error', fastApiError(), 502, 'TTS_UPSTREAM_ERROR'],
    ['an OpenAI error', openAiError(500), 502, 'TTS_UPSTREAM_ERROR'],
    ['garbage', garbage(), 502, 'TTS_UPSTREAM_ERROR'],
    ['HTML', html(), 502, 'TTS_UPSTREAM_ERROR'],
    ['JSON', json({ audio: 'none' }), 502, 'TTS_UPSTREAM_ERROR'],
    ['a redirect', redirect('http://127.0.0.1:1/'), 502, 'TTS_UPSTREAM_ERROR'],
    ['a hang', hangBeforeHeaders(), 503, 'TTS_UNAVAILABLE'],
    ['a reset', resetBeforeHeaders(), 503, 'TTS_UNAVAILABLE'],
    ['a closed connection', closeBeforeHeaders(), 503, 'TTS_UNAVAILABLE'],
    ['429', tooManyRequests('7'), 503, 'TTS_UNAVAILABLE'],
  ];
  for (const [name, mode, status, code] of cases) {
    await t.test(name, async () => {
      upstream.mode = mode;
      const reply = await gateway.call('/tts', say(account));
      assert.equal(reply.json.error.code, code);
      assert.equal(reply.status, status);
      if (name === '429') assert.equal(reply.headers.get('retry-after'), '7');
      assert.equal(await gateway.balance(account), 5_000_000n);
      assert.deepEqual(await audit(gateway.db), []);
    });
  }
  await t.test('unreachable', async () => {
    await upstream.close();
    const reply = await gateway.call('/tts', say(account));
    assert.equal(reply.json.error.code, 'TTS_UNAVAILABLE');
    assert.equal(await gateway.balance(account), 5_000_000n);
  });
});

test('R55: an upstream that breaks off after its first bytes costs nothing, and the connection is reset', async (t) => {
  const { gateway, upstream } = await bench(t, { SPEECH_TIMEOUT_MS: '1000' });
  const account = await gateway.fund(500);
  const { contentLengthTooLarge, cutChunked, hangInBody, resetInBody } = upstreamModes;
  for (const mode of [contentLengthTooLarge(), cutChunked(), resetInBody(), hangInBody()]) {
    upstream.mode = mode;
    await assert.rejects(gateway.call('/tts', say(account)), /aborted|ECONNRESET|socket hang up/);
    await until(async () => (await gateway.balance(account)) === 5_000_000n);
  }
  assert.deepEqual(await audit(gateway.db), []);
});

test('R56: card TTS passes WAV on as audio/wav', async (t) => {
  const { gateway, upstream } = await bench(t);
  upstream.mode = wav();
  const reply = await gateway.call('/tts', say(await gateway.fund(500)));
  assert.equal(reply.status, 200);
  assert.equal(reply.headers.get('content-type'), 'audio/wav');
});

test('R55: the first audio arrives before the upstream has finished, the last once it is captured', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const audio = silentMp3(2000);
  const outgoing = request(`${gateway.url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
  outgoing.end();
  await drip.opened;
  drip.write(audio.subarray(0, 8000));
  const [incoming] = await once(outgoing, 'response');
  const [first] = await once(incoming, 'data');
  assert.ok(first.length > 0);
  assert.equal(
    (await gateway.db.selectFrom('transfer').select('state').where('kind', '=', 'charge').executeTakeFirstOrThrow())
      .state,
    'pending',
  );
  const chunks = [first];
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
  drip.write(audio.subarray(8000));
  drip.end();
  await once(incoming, 'end');
  assert.deepEqual(Buffer.concat(chunks), Buffer.from(audio));
  assert.equal(
    (await gateway.db.selectFrom('transfer').select('state').where('kind', '=', 'charge').executeTakeFirstOrThrow())
      .state,
    'posted',
  );
});

test('R55: a caller who hangs up at 0 %, at half and at the last byte is charged each time', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  const audio = silentMp3(2000);
  let balance = 5_000_000n;
  for (const share of [0, 0.5, 1]) {
    const drip = new Drip();
    upstream.mode = drip.mode;
    const outgoing = request(`${gateway.url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
    outgoing.on('error', () => {});
    outgoing.end();
    await drip.opened;
    const sent = Math.floor(audio.length * share);
    if (sent > 0) {
      drip.write(audio.subarray(0, sent));
      const [incoming] = await once(outgoing, 'response');
      incoming.on('error', () => {});
      for (let received = 0; received < sent - 1; ) received += (await once(incoming, 'data'))[0].length;
    }
    outgoing.destroy();
    drip.write(audio.subarray(sent));
    drip.end();
    balance -= 198n;
    await until(async () => {
      const pending = await gateway.db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute();
      return pending.length === 0;
    });
    assert.equal(await gateway.balance(account), balance, `gone at ${share * 100} %`);
    assert.equal(await upstream.requests.at(-1)?.closed, 'complete', 'synthesis was read to the end');
  }
  assert.deepEqual(await audit(gateway.db), []);
});

test('R55: a caller who does not read never slows the upstream', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  upstream.mode = mp3(20 * 60 * 1000);
  const outgoing = request(`${gateway.url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
  outgoing.on('error', () => {});
  outgoing.end();
  const [incoming] = await once(outgoing, 'response');
  incoming.pause();
  await until(async () => {
    const { state } = await gateway.db
      .selectFrom('transfer')
      .select('state')
      .where('kind', '=', 'charge')
      .executeTakeFirstOrThrow();
    return state === 'posted';
  });
  outgoing.destroy();
});
