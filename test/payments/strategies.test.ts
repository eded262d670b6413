import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import type { Delivery } from '../../src/payments/delivery.ts';
import { type Charge, type PaymentHold, speak } from '../../src/payments/speak.ts';
import { SpeechError } from '../../src/speech/provider.ts';
import { AudioMemory, SynthesisPermits } from '../../src/speech/synthesis-permits.ts';
import { testChain, wallet } from '../support/chain.ts';
import { type Reply, startGateway } from '../support/gateway.ts';
import { later } from '../support/jobs.ts';
import { PRICE as PAYER_PRICE, PAYERS, type Payer } from '../support/payers.ts';
import { fundedWallet, HELLO, startPrepaidGateway, TTS, withHeaders } from '../support/prepaid.ts';
import { recordStatements } from '../support/recorded-statements.ts';
import { MONO_44100, mpegFrames, silentMp3, silentWav } from '../support/silent-audio.ts';
import {
  body,
  ControlledStream,
  empty,
  garbage,
  hangBeforeHeaders,
  html,
  json,
  type Mode,
  openAiError,
  resetInBody,
} from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { challengeOf, PRICE, payFor, sign, startX402Gateway, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();
const NOTHING = { state: 'not_charged', amountMicroUsd: 0 };

const paymentOf = ({ status, json, text }: Reply) => {
  assert.ok(status >= 400, text);
  return json.error.details?.payment;
};

for (const [name, { start, skip }] of Object.entries(PAYERS)) {
  if (name === 'job') continue;

  test(`R64: ${name}: an error says that nothing was charged, or nothing about money`, { skip }, async (t) => {
    const { gateway, upstream, path, pay, ask, paid } = await start(t, {}, undefined, 10_000n);
    const working = upstream.mode;
    upstream.mode = openAiError(500);
    t.strictSame(paymentOf(await gateway.call(path, await pay())), NOTHING);
    t.equal(await paid(), 0n);
    upstream.mode = working;
    const { json: _, ...call } = await pay();
    const headers = { ...call.headers, 'content-type': 'application/json' };
    const broken = await gateway.call(path, { ...call, headers, body: '{' });
    t.strictSame([broken.status, broken.json.error.code, paymentOf(broken)], [400, 'INVALID_JSON', undefined]);
    for (let left = 10_000n; left >= PAYER_PRICE; left -= PAYER_PRICE) t.equal((await ask(await pay())).status, 200);
    const refused = await gateway.call(path, await pay());
    t.strictSame([refused.status, paymentOf(refused)], [402, NOTHING]);
  });
}

test('R64: a job whose COMMIT got no response may be charged, and a repeat finds it', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const key = randomUUID();
  recordStatements(t).loseAnswer(/^commit$/i);
  const lost = await later(gateway, account, { key });
  t.equal(lost.status, 503, lost.text);
  t.equal(lost.json.error.details.reason, 'database_unavailable');
  t.strictSame(paymentOf(lost), { state: 'unknown', amountMicroUsd: 198 });
  const again = await later(gateway, account, { key });
  t.strictSame([again.status, again.headers.get('x-credit-charged')], [202, '198']);
  t.equal(await gateway.balance(account), 5_000_000n - 198n);
});

test('R64: a reused idempotency key or an empty account charges nothing', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  await later(gateway, account, { key: 'k' });
  t.strictSame(paymentOf(await later(gateway, account, { key: 'k', text: 'Other words' })), NOTHING);
  const poor = await gateway.fund(1);
  t.strictSame(paymentOf(await later(gateway, poor, { key: 'k', text: 'x'.repeat(4000) })), NOTHING);
});

test('R64: a prepaid request whose debit got no response may be charged', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await fundedWallet(gateway, 10_000n);
  recordStatements(t).loseAnswer(/insert into prepaid_nonce/);
  const lost = await gateway.call(TTS, await sign(TTS, HELLO));
  t.strictSame([lost.status, paymentOf(lost)], [503, { state: 'unknown', amountMicroUsd: 198 }]);
});

test('R64: prepaid refusals after the look-up charge nothing', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await fundedWallet(gateway, 10_000n);
  const nonce = randomUUID();
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO, { nonce }))).status, 200);
  const now = BigInt(Math.floor(Date.now() / 1000));
  const refused = {
    'another request with the nonce': await sign(TTS, { method: 'POST', json: { text: 'Other words' } }, { nonce }),
    'above the maximum': await sign(TTS, HELLO, { max: 1n }),
    'a wrong signature': withHeaders(await sign(TTS, HELLO), { 'x-x402-nonce': randomUUID() }),
    'an expiry of an hour ago': await sign(TTS, HELLO, { expiry: now - 3600n }),
  };
  for (const [name, call] of Object.entries(refused)) {
    t.strictSame(paymentOf(await gateway.call(TTS, call)), NOTHING, name);
  }
  const forgotten = await gateway.call(TTS, await sign(TTS, HELLO, { expiry: now - 100_000n }));
  t.strictSame([forgotten.status, paymentOf(forgotten)], [400, { state: 'unknown' }], 'its nonce may be pruned');
});

test('R64: a malformed credential is refused before the look-up', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await fundedWallet(gateway, 10_000n);
  const missing = await gateway.call(TTS, withHeaders(await sign(TTS, HELLO), { 'x-x402-nonce': undefined }));
  const junk = await gateway.call(TTS, withPayment(HELLO, 'junk'));
  for (const reply of [missing, junk]) t.strictSame([reply.status, paymentOf(reply)], [400, undefined]);
});

test('R64: a direct payment says whether it was settled', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  gateway.facilitator.faults.verify({ isValid: false, invalidReason: 'insufficient_funds' });
  const invalid = (await payFor(gateway, payer)).reply;
  t.strictSame([invalid.status, paymentOf(invalid)], [402, NOTHING]);
  gateway.facilitator.faults.verify('error');
  const unverified = (await payFor(gateway, payer)).reply;
  t.strictSame([unverified.status, paymentOf(unverified)], [502, NOTHING]);
  gateway.facilitator.faults.settle({
    broadcast: false,
    answer: () => ({ success: false, errorReason: 'insufficient_funds', transaction: '', network: 'eip155:8453' }),
  });
  const { reply: refused, paid } = await payFor(gateway, payer);
  const unknown = { state: 'unknown', amountMicroUsd: Number(PRICE) };
  t.strictSame([refused.status, paymentOf(refused)], [402, unknown], 'R62: it may still land');
  t.match(
    refused.json.error.message,
    /You may still be charged until this payment expires\. Repeat the identical request/,
  );
  t.strictSame(paymentOf(await gateway.call(TTS, paid)), unknown);
  const offer = await challengeOf(gateway, TTS, HELLO);
  const foreign = await sign(payer, {
    ...offer,
    accepts: [{ ...offer.accepts[0], payTo: payer.address }],
  } as typeof offer);
  t.strictSame(paymentOf(await gateway.call(TTS, withPayment(HELLO, foreign))), NOTHING);
});

test('R65: a card price above x-credit-max-amount is refused and nothing is held', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account, 'x-credit-max-amount': '197' };
  for (const path of ['/tts', '/tts?async=true']) {
    const refused = await gateway.call(path, { ...HELLO, headers });
    const { reason, payment, priceMicroUsd } = refused.json.error.details;
    t.strictSame([refused.status, reason, payment, priceMicroUsd], [402, 'over_max_amount', NOTHING, 198], path);
    t.match(refused.json.error.message, /above x-credit-max-amount.* You were not charged/);
    const unknown = await gateway.call(path, { ...HELLO, headers: { ...headers, 'x-credit-account': randomUUID() } });
    t.strictSame([unknown.status, unknown.json.error.details.reason], [402, 'unknown_account']);
  }
  const get = await gateway.call('/tts?text=Hello%20world', { headers });
  t.strictSame([get.status, get.json.error.details.reason], [402, 'over_max_amount']);
  t.equal((await gateway.db.selectFrom('transfer').select('id').where('kind', '=', 'charge').execute()).length, 0);
  const allowed = await gateway.call('/tts?async=true', {
    ...HELLO,
    headers: { ...headers, 'x-credit-max-amount': '198' },
  });
  t.strictSame([allowed.status, allowed.headers.get('x-credit-charged')], [202, '198']);
});

test('R65: x-credit-max-amount is a whole number up to 2^63 - 1, at /tts only', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const ask = (path: string, maximum: string) =>
    gateway.call(path, { ...HELLO, headers: { 'x-credit-account': account, 'x-credit-max-amount': maximum } });
  for (const maximum of ['', '-1', '1.5', '1e3', 'x', '9223372036854775808', '10000000000000000000']) {
    const { status, json } = await ask('/tts?async=true', maximum);
    t.strictSame([status, json.error.code, json.error.details.field], [400, 'INVALID_REQUEST', 'x-credit-max-amount']);
  }
  t.equal((await ask('/tts?async=true', '9223372036854775807')).status, 202);
  const foreign = await gateway.call(TTS, { ...HELLO, headers: { 'x-credit-max-amount': '1' } });
  t.strictSame([foreign.status, foreign.json.error.details.rule], [400, 'one flow']);
});

/** Those that may pass by themselves are tried again by a job (test/jobs/run.test.ts). */
const FAULTS: { name: string; mode: Mode; mayPass: boolean }[] = [
  { name: 'an error', mode: openAiError(500), mayPass: true },
  { name: 'a refusal', mode: openAiError(403), mayPass: false },
  { name: 'garbage', mode: garbage(), mayPass: false },
  { name: 'a reset within the audio', mode: resetInBody(), mayPass: true },
  { name: 'silence', mode: hangBeforeHeaders(), mayPass: true },
];

for (const [name, { start, skip }] of Object.entries(PAYERS)) {
  const isJob = name === 'job';

  test(`${name}: the payment strategy keeps the common rules`, { skip }, async (t) => {
    await t.test('a failed synthesis charges nothing, and the next request its exact price, once', async (t) => {
      const { gateway, upstream, ask, pay, paid } = await start(t, { SPEECH_TIMEOUT_MS: '500' });
      for (const fault of FAULTS.filter(({ mayPass }) => !(isJob && mayPass))) {
        const working = upstream.mode;
        upstream.mode = fault.mode;
        const status = await ask(await pay()).then(
          (reply) => reply.status,
          () => 'reset',
        );
        t.ok([502, 503, 'reset'].includes(status), `${fault.name}: ${status}`);
        await until(async () => (await paid()) === 0n);
        upstream.mode = working;
      }
      t.strictSame(await ask(await pay()), { status: 200, mimeType: 'audio/mpeg' });
      t.equal(await paid(), PAYER_PRICE);
      t.strictSame(await audit(gateway.db), []);
    });

    await t.test('of 12 concurrent requests on a budget for 5, exactly 5 are served and charged', async (t) => {
      const { gateway, ask, pay, paid } = await start(t, {});
      const calls = await Promise.all(Array.from({ length: 12 }, pay));
      const replies = await Promise.all(calls.map(ask));
      const served = replies.filter(({ status }) => status === 200).length;
      t.equal(served, 5, replies.map(({ status }) => status).join());
      t.ok(replies.every(({ status }) => status === 200 || status === 402));
      t.equal(await paid(), 5n * PAYER_PRICE);
      t.strictSame(await audit(gateway.db), []);
    });

    await t.test('R55: a caller who disconnects during synthesis is charged', async (t) => {
      const { gateway, upstream, path, pay, paid } = await start(t, {});
      const drip = new ControlledStream();
      upstream.mode = drip.mode;
      const { headers, json } = await pay();
      const options = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' } };
      const outgoing = request(`${gateway.url}${path}`, options).on('error', () => {});
      outgoing.end(JSON.stringify(json));
      await drip.opened;
      outgoing.destroy();
      drip.write(silentMp3(500));
      drip.end();
      await until(async () => (await paid()) === PAYER_PRICE);
      await gateway.app.server.close();
      t.strictSame(await audit(gateway.db), []);
    });

    // The others answer by the same table.
    if (name !== 'card') return;

    await t.test('R9: an overloaded upstream is 503 with its Retry-After, other errors are 502', async (t) => {
      const { gateway, upstream, path, pay, paid } = await start(t, {});
      for (const status of [400, 401, 402, 403, 404, 408, 429, 500, 501, 502, 503, 504, 529]) {
        upstream.mode = openAiError(status, 'canary', { 'retry-after': '7' });
        const { json, headers, ...reply } = await gateway.call(path, await pay());
        const isOverloaded = status === 429 || status === 503;
        t.equal(reply.status, isOverloaded ? 503 : 502, String(status));
        t.equal(json.error.code, isOverloaded ? 'TTS_UNAVAILABLE' : 'TTS_UPSTREAM_ERROR');
        t.equal(headers.get('retry-after'), isOverloaded ? '7' : null);
        t.notMatch(reply.text, /canary/);
      }
      t.equal(await paid(), 0n);
      t.strictSame(await audit(gateway.db), []);
    });
  });
}

const FRAMES = silentMp3(240);
/** An ID3v2 tag without content. */
const ID3 = Buffer.from('ID3\x04\0\0\0\0\0\0', 'latin1');
const ID3V1 = Buffer.concat([Buffer.from('TAG'), Buffer.alloc(125)]);
const STEREO = mpegFrames([0xff, 0xfb, 0x94, 0x04]);
const CHUNKED = { framing: 'chunked' } as const;
const labelled = (contentType: string, bytes: Uint8Array | string): Mode => body(bytes, { contentType });

const unlabelled =
  (bytes: Uint8Array): Mode =>
  (_request, response) => {
    response.writeHead(200, { 'content-length': bytes.length }).end(bytes);
  };

const otherRate = silentWav(20);
otherRate.writeUInt32LE(16_000, 24);

const NOT_SOLD: Readonly<Record<string, Mode>> = {
  'an empty body': empty(),
  'an empty chunked body': empty(CHUNKED),
  'only a tag': body(ID3),
  'only tags': body(Buffer.concat([ID3, ID3V1]), CHUNKED),
  'JSON labelled as audio': body('{"audio":null}'),
  'JSON in an octet stream': labelled('binary/octet-stream', '{"audio":null}'),
  JSON: json({ audio: null }),
  HTML: html(),
  'HTML labelled as audio': body('<!doctype html><p>Sign in'),
  'garbage before the audio': body(Buffer.concat([Buffer.from('garbage'), FRAMES])),
  'an error in JSON behind the audio': body(Buffer.concat([FRAMES, Buffer.from('{"error":1}')])),
  'an MP3 whose sampling rate changes': body(Buffer.concat([FRAMES, mpegFrames(MONO_44100)])),
  'an MP3 whose channels change, chunked': body(Buffer.concat([FRAMES, STEREO]), CHUNKED),
  'MP3 files of different sampling rates': body(Buffer.concat([ID3, FRAMES, ID3V1, ID3, mpegFrames(MONO_44100)])),
  'a WAV file without samples': labelled('audio/wav', silentWav(0)),
  'WAV files of different formats': labelled('audio/wav', Buffer.concat([silentWav(20), otherRate])),
  'WAV files of which the first has told its length': body(Buffer.concat([silentWav(20), silentWav(20)]), CHUNKED),
  'a cut within a frame': body(FRAMES.subarray(0, -1)),
  'a cut within the first frame': body(FRAMES.subarray(0, 100)),
  'a cut behind the tag of a second file': body(Buffer.concat([FRAMES, ID3]), CHUNKED),
  'a cut WAV file': labelled('audio/wav', silentWav(20).subarray(0, -2)),
};

const SOLD: Readonly<Record<string, Mode>> = {
  'files with tags': body(Buffer.concat([FRAMES, ID3V1, ID3, FRAMES, ID3V1])),
  'files with tags, chunked': body(Buffer.concat([FRAMES, ID3V1, ID3, FRAMES, ID3V1]), CHUNKED),
  ...Object.fromEntries(
    ['application/octet-stream', 'audio/x-mpeg-3', 'Audio/MPEG; codecs="mp3"', 'audio/*', 'video/mpeg', ''].map(
      (label) => [`MP3 labelled as "${label}"`, labelled(label, Buffer.concat([FRAMES, FRAMES]))],
    ),
  ),
  'MP3 without a label': unlabelled(Buffer.concat([FRAMES, FRAMES])),
};

const askOf = async ({ ask, pay }: Payer): Promise<number | 'reset'> =>
  ask(await pay()).then(
    ({ status }) => status,
    () => 'reset',
  );

// Streamed, and collected as for all other flows.
for (const name of ['card', 'prepaid'] as const) {
  const { start } = PAYERS[name];

  test(`R68: ${name}: incomplete or invalid audio is refused and not charged`, async (t) => {
    const payer = await start(t, { SPEECH_TIMEOUT_MS: '2000' });
    for (const [fault, mode] of Object.entries(NOT_SOLD)) {
      payer.upstream.mode = mode;
      t.equal(await askOf(payer), 502, fault);
    }
    t.equal(await payer.paid(), 0n);
    t.strictSame(await audit(payer.gateway.db), []);
  });

  test(`R68: ${name}: the format follows the bytes, and several files are joined`, async (t) => {
    const payer = await start(t, {}, undefined, 100_000n);
    for (const [shown, mode] of Object.entries(SOLD)) {
      payer.upstream.mode = mode;
      const { status, headers, bytes } = await payer.gateway.call(payer.path, await payer.pay());
      t.equal(status, 200, shown);
      t.equal(headers.get('content-type'), 'audio/mpeg', shown);
      t.ok(bytes.equals(Buffer.concat([FRAMES, FRAMES])), shown);
    }
    t.equal(await payer.paid(), PAYER_PRICE * BigInt(Object.keys(SOLD).length));
  });
}

test('R68: card: consecutive WAV files are joined, with sizes where the response has a length', async (t) => {
  const payer = await PAYERS.card.start(t);
  const file = silentWav(20);
  payer.upstream.mode = labelled('', Buffer.concat([file, file, file]));
  const { status, headers, bytes } = await payer.gateway.call(payer.path, await payer.pay());
  t.strictSame([status, headers.get('content-type')], [200, 'audio/wav']);
  const isWhole = headers.has('content-length');
  const sizes = isWhole ? [bytes.length - 8, bytes.length - 44] : [0xffffffff, 0xffffffff];
  t.strictSame([bytes.readUInt32LE(4), bytes.readUInt32LE(40)], sizes);
  t.ok(bytes.subarray(44).equals(Buffer.concat([file, file, file].map((each) => each.subarray(44)))));
  t.equal(await payer.paid(), PAYER_PRICE);
});

test('R68: card: invalid audio found while streaming aborts the response uncharged', async (t) => {
  const payer = await PAYERS.card.start(t);
  const endings: Record<string, Uint8Array> = {
    'an error in JSON': Buffer.from('{"error":"out of memory"}'),
    'half a frame': FRAMES.subarray(0, 100),
    'the tag of a second file': ID3,
    'a frame of another sampling rate': mpegFrames(MONO_44100, 1),
    'a frame of two channels': STEREO,
  };
  for (const [ending, bytes] of Object.entries(endings)) {
    const drip = new ControlledStream();
    payer.upstream.mode = drip.mode;
    const asked = askOf(payer);
    await drip.opened;
    await drip.write(FRAMES);
    await until(async () => (await payer.paid()) > 0n);
    await drip.write(bytes);
    drip.end();
    t.equal(await asked, 'reset', ending);
    await until(async () => (await payer.paid()) === 0n);
  }
  t.strictSame(await audit(payer.gateway.db), []);
});

test('speech that starts after its lease may have ended is aborted and voided', async (t) => {
  const events: string[] = [];
  const hold: PaymentHold = {
    receipt: undefined,
    capture: async () => {
      events.push('captured');
      return true;
    },
    void: async () => {
      events.push('voided');
    },
    keepLease: () => () => events.push('lease let go'),
    ownsLease: () => false,
  };
  const delivery: Delivery<string> = async (_utterance, { lost }) => ({
    body: 'the first audio',
    upstream: undefined,
    complete: new Promise((_, reject) => {
      lost.addEventListener('abort', () => {
        events.push('synthesis ended');
        reject(new SpeechError('TTS_UNAVAILABLE', 'It was ended.', true));
      });
    }),
  });
  const permits = new SynthesisPermits(1, new AudioMemory(1));
  const authorize = async () => ({ outcome: 'held', hold }) as const;
  const response = { onEnd: () => {}, abort: () => {} };
  const charge = { utterance: {}, request: { response } } as unknown as Charge;
  const sold = await speak({ authorize, charge, delivery, permits });
  t.equal(sold.outcome, 'failed');
  await nextTurn();
  t.strictSame(events, ['synthesis ended', 'voided', 'lease let go']);
  t.equal(permits.taken, 0);
});
