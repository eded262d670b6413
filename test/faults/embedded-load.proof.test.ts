import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { type Call, startGateway } from '../support/gateway.ts';

const LONG = 'The birch canoe slid on the smooth planks. '.repeat(60);
/** A character that stands for four words. */
const ENDLESS = '\u21a9'.repeat(4000);
const REQUESTS = 12;

test('a voice with too much to speak refuses before the hold, and speaks to the end what it has taken on', async (t) => {
  const gateway = await startGateway(t, { SPEECH_BASE_URL: 'embedded:', SPEECH_TIMEOUT_MS: '30000' });
  const account = await gateway.fund(500);
  const call: Call = {
    method: 'POST',
    headers: { 'x-credit-account': account },
    json: { text: LONG, voice: 'provider-a_onyx', speed: 2 },
  };
  const alone = await gateway.call('/tts', call);
  assert.equal(alone.status, 200);
  const replies = await Promise.all(
    Array.from({ length: REQUESTS }, () =>
      gateway.call('/tts', { ...call, json: { ...(call.json as object), speed: 0.5 } }),
    ),
  );
  const served = replies.filter(({ status }) => status === 200);
  assert.ok(served.length > 0 && served.length < REQUESTS, replies.map(({ status }) => status).join());
  for (const { bytes } of served) assert.ok(bytes.length > 3 * alone.bytes.length, 'spoken to its end');
  for (const reply of replies.filter(({ status }) => status !== 200)) {
    assert.deepEqual([reply.status, reply.json.error.code], [503, 'TTS_UNAVAILABLE']);
    assert.ok(Number(reply.headers.get('retry-after')) > 0);
  }
  const charges = await gateway.db.selectFrom('transfer').select('state').where('kind', '=', 'charge').execute();
  assert.deepEqual(
    charges.map(({ state }) => state),
    Array.from({ length: served.length + 1 }, () => 'posted'),
    'only what was spoken was ever held',
  );
  assert.deepEqual(await audit(gateway.db), []);
});

test('a text that would never be spoken to its end is 413 before the hold, asynchronous or not', async (t) => {
  const gateway = await startGateway(t, { SPEECH_BASE_URL: 'embedded:' });
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  for (const path of ['/tts', '/tts?async=true']) {
    const reply = await gateway.call(path, { method: 'POST', headers, json: { text: ENDLESS } });
    assert.deepEqual([reply.status, reply.json.error.code], [413, 'TEXT_TOO_LONG']);
    const payment = { state: 'not_charged', amountMicroUsd: 0 };
    assert.deepEqual(reply.json.error.details, { field: 'text', rule: 'duration', payment });
  }
  assert.equal(await gateway.balance(account), 5_000_000n);
  assert.deepEqual(await gateway.db.selectFrom('transfer').select('id').where('kind', '=', 'charge').execute(), []);
});
