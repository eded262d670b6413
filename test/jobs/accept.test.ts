import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { t, test } from 'tap';
import { isAsynchronous } from '../../src/jobs/job.ts';
import { audit } from '../../src/ledger/audit.ts';
import { BASE_URL, startGateway } from '../support/gateway.ts';
import { later } from '../support/jobs.ts';

const PRICE = 198n;
const FUNDS = 5_000_000n;

/** Without a worker, so that jobs stay as they were accepted. */
const gateway = await startGateway(t);

const jobs = (account: string) => gateway.db.selectFrom('job').selectAll().where('account_id', '=', account).execute();
/** The payloads in the queue of an account's jobs, by their keys. */
const entries = async (account: string) => {
  const { rows } = await sql<{ key: string; payload: object }>`
    select key, payload from graphile_worker._private_jobs join job on job.id::text = key
    where account_id = ${account}`.execute(gateway.db);
  return rows;
};

const UUID_V4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

test('async=true returns 202 with a queued job and debits its price at once', async (t) => {
  const account = await gateway.fund(500);
  const reply = await later(gateway, account);
  t.equal(reply.status, 202);
  t.equal(reply.headers.get('x-credit-account'), account);
  t.equal(reply.headers.get('x-credit-balance'), String(FUNDS - PRICE));
  t.equal(reply.headers.get('cache-control'), 'private, no-store');
  const job = reply.json;
  t.match(job.jobId, UUID_V4, 'R57');
  t.strictSame(job, {
    jobId: job.jobId,
    status: 'queued',
    traceId: reply.headers.get('x-trace-id'),
    createdAt: job.createdAt,
    updatedAt: job.createdAt,
    startedAt: null,
    completedAt: null,
    error: null,
    result: null,
    links: { status: `${BASE_URL}/tts/jobs/${job.jobId}`, audio: null },
  });
  t.ok(Math.abs(Date.parse(job.createdAt) - Date.now()) < 60_000);
  t.equal(await gateway.balance(account), FUNDS - PRICE);

  const polled = await gateway.call(`/tts/jobs/${job.jobId}`);
  t.equal(polled.status, 200);
  t.equal(polled.headers.get('cache-control'), 'private, no-store', 'R52');
  t.strictSame(polled.json, job);
  const entry = { key: job.jobId, payload: { jobId: job.jobId } };
  t.strictSame(await entries(account), [entry], "the queue knows the job's id only");
  t.strictSame(await audit(gateway.db), []);
});

test('R2: POST and GET make the same job, and storeAudio=false wins', async (t) => {
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  const text = { method: 'POST', headers: { ...headers, 'content-type': 'text/plain' }, body: ' Hello world\n' };
  const json = (more: object = {}) => ({ method: 'POST', headers, json: { text: 'Hello world', ...more } });
  const voiced = '&voice=provider-a_nova&speed=1.25&model=provider-a/tts-1-hd';
  const asked: [path: string, call: object, stored: boolean][] = [
    ['/tts?async=true', json(), true],
    ['/tts?async=true', json({ storeAudio: true }), true],
    ['/tts?async=true', json({ storeAudio: false }), false],
    ['/tts?async=true&storeAudio=false', json(), false],
    ['/tts?async=true&storeAudio=false', json({ storeAudio: true }), false],
    ['/tts?async=true&storeAudio=true', json({ storeAudio: false }), false],
    ['/tts?async=true&storeAudio=true', text, true],
    ['/tts?async=true&storeAudio=false', text, false],
    ['/tts?async=true&text=Hello%20world', { headers }, true],
    ['/tts?async=true&storeAudio=false&text=Hello%20world', { headers }, false],
    [`/tts?async=true&text=Hello%20world${voiced}`, { headers }, true],
    [`/tts?async=true${voiced}`, text, true],
    ['/tts?async=true', json({ voice: 'provider-a_nova', speed: 1.25, model: 'provider-a/tts-1-hd' }), true],
  ];
  for (const [path, call, stored] of asked) {
    const reply = await gateway.call(path, call);
    t.equal(reply.status, 202, path);
    const row = await gateway.db.selectFrom('job').selectAll().where('id', '=', reply.json.jobId).executeTakeFirst();
    assert.ok(row);
    t.equal(row.text, 'Hello world');
    t.equal(row.store_audio, stored, `${path} ${JSON.stringify(call)}`);
    const isVoiced = path.includes(voiced) || JSON.stringify(call).includes('nova');
    t.strictSame([row.model, row.voice, row.speed], isVoiced ? ['tts-1-hd', 'nova', 1.25] : ['tts-1', 'alloy', 1]);
  }
  t.strictSame(await audit(gateway.db), []);
});

test('async and storeAudio accept only true and false and ignore other text', async (t) => {
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  const post = { method: 'POST', headers, json: { text: 'Hello world' } };
  for (const async of ['0', '1', '', 'TRUE', 'maybe']) {
    const got = await gateway.call(`/tts?text=Hello+world&async=${async}`);
    t.equal(got.status, 402, `GET async=${async}`);
    // The provider can't be reached: this was asked at once, and no job was made.
    t.equal((await gateway.call(`/tts?async=${async}`, post)).json.error.code, 'TTS_UNAVAILABLE');
  }
  t.strictSame(await jobs(account), []);
  for (const storeAudio of ['0', '', 'FALSE']) {
    t.equal((await gateway.call(`/tts?async=true&storeAudio=${storeAudio}`, post)).status, 202);
    const get = `/tts?async=true&text=Hello+world&storeAudio=${storeAudio}`;
    t.equal((await gateway.call(get, { headers })).status, 202);
  }
  t.ok((await jobs(account)).every(({ store_audio }) => store_audio));
});

test('R7: nothing is queued or debited unless every check passes', async (t) => {
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  const unknown = { 'x-credit-account': randomUUID() };
  const nobody = { 'x-credit-account': 'nobody' };
  const key = { 'idempotency-key': 'k' };
  const refused: [body: object, headers: Record<string, string>, status: number, code: string][] = [
    [{ text: ' ' }, headers, 400, 'INVALID_REQUEST'],
    [{ text: 'a', model: 'x/y' }, headers, 400, 'UNKNOWN_TTS_MODEL'],
    [{ text: 'a', voice: 'nova' }, headers, 400, 'INVALID_VOICE'],
    [{ text: 'a', speed: 3 }, headers, 400, 'INVALID_SPEED'],
    [{ text: 'a'.repeat(4097) }, headers, 413, 'TEXT_TOO_LONG'],
    [{ text: 'a' }, { ...headers, 'x-x402-nonce': '1' }, 400, 'INVALID_REQUEST'],
    [{ text: 'a' }, { ...headers, 'idempotency-key': 'k'.repeat(513) }, 400, 'INVALID_REQUEST'],
    ...[{}, unknown, nobody, { ...unknown, ...key }, { ...nobody, ...key }].map((payer): (typeof refused)[number] => [
      { text: 'a' },
      payer,
      402,
      'PAYMENT_REQUIRED',
    ]),
  ];
  for (const [json, headers, status, code] of refused) {
    const reply = await gateway.call('/tts?async=true', { method: 'POST', json, headers });
    t.strictSame([reply.status, reply.json.error.code], [status, code], JSON.stringify(json).slice(0, 200));
  }
  const twice = await gateway.call('/tts?async=true&async=true', { method: 'POST', json: { text: 'a' }, headers });
  t.equal(twice.status, 400, 'R49');
  await gateway.db.updateTable('account').set({ balance_micro_usd: 197n }).where('id', '=', account).execute();
  const { status, json } = await later(gateway, account);
  const { reason, priceMicroUsd, balanceMicroUsd } = json.error.details;
  t.strictSame([status, reason, priceMicroUsd, balanceMicroUsd], [402, 'insufficient_funds', 198, 197]);
  t.strictSame([await jobs(account), await entries(account)], [[], []]);
  t.equal(await gateway.balance(account), 197n);
  await gateway.db.updateTable('account').set({ balance_micro_usd: FUNDS }).where('id', '=', account).execute();
});

test('no job is accepted without a speech provider or with the card flow off', async (t) => {
  for (const [env, code] of [
    [{ SPEECH_BASE_URL: '' }, 'TTS_PROVIDER_NOT_CONFIGURED'],
    [{ STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' }, 'CONFIG_ERROR'],
  ] as const) {
    const { databaseUrl } = gateway;
    const reply = await later(await startGateway(t, env, { databaseUrl }), await gateway.fund(500));
    t.strictSame([reply.status, reply.json.error.code], [503, code]);
  }
});

test('R57: an unknown job or an id that is not a UUID is 404', async (t) => {
  for (const id of [randomUUID(), 'x', '1', `${randomUUID()}0`, "';--", '%00', 'x'.repeat(5000)]) {
    for (const path of [`/tts/jobs/${id}`, `/tts/jobs/${id}/audio`]) {
      const reply = await gateway.call(path);
      t.strictSame([reply.status, reply.json.error.code], [404, 'NOT_FOUND'], path.slice(0, 60));
    }
  }
  const account = await gateway.fund(500);
  const { jobId } = (await later(gateway, account)).json;
  t.equal((await gateway.call(`/tts/jobs/${jobId.toUpperCase()}`)).status, 200);
  t.equal((await gateway.call(`/tts/jobs/${jobId}`, { method: 'HEAD' })).status, 200);
  const refused = await gateway.call(`/tts/jobs/${jobId}`, { method: 'POST' });
  t.strictSame([refused.status, refused.headers.get('allow')], [405, 'GET, HEAD, OPTIONS']);
});

test('R17: the same key and request return the same job without a new debit', async (t) => {
  const account = await gateway.fund(500);
  const first = await later(gateway, account, { key: 'order 7' });
  t.equal(first.status, 202);
  // The same request in other words: defaults spelt out, the text untrimmed, the account's id in capitals.
  const same = [
    await later(gateway, account, { key: 'order 7' }),
    await later(gateway, account, { key: 'order 7', text: ' Hello world ' }),
    await later(gateway, account, {
      key: 'order 7',
      json: { model: 'provider-a/tts-1', voice: 'provider-a_alloy', speed: 1, storeAudio: true },
    }),
    await later(gateway, account.toUpperCase(), { key: 'order 7' }),
    await gateway.call('/tts?async=true&text=Hello%20world', {
      headers: { 'x-credit-account': account, 'idempotency-key': 'order 7' },
    }),
  ];
  for (const reply of same) {
    t.equal(reply.status, 202);
    t.equal(reply.json.jobId, first.json.jobId);
    t.equal(reply.json.traceId, first.json.traceId, 'the trace is that of the request that made the job');
    t.equal(reply.headers.get('x-credit-balance'), String(FUNDS - PRICE));
  }
  t.equal((await jobs(account)).length, 1);
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);

  const setBalance = (balance_micro_usd: bigint) =>
    gateway.db.updateTable('account').set({ balance_micro_usd }).where('id', '=', account).execute();
  await setBalance(0n);
  const again = await later(gateway, account, { key: 'order 7' });
  t.strictSame(
    [again.json.jobId, again.headers.get('x-credit-balance')],
    [first.json.jobId, '0'],
    'also when it is empty',
  );
  await setBalance(FUNDS - PRICE);
  const headers = { 'x-credit-account': account, 'idempotency-key': 'order 7' };
  const atOnce = await gateway.call('/tts?async=false', { method: 'POST', headers, json: { text: 'two' } });
  t.equal(atOnce.status, 503, 'a synchronous request ignores the key: the provider, which is not there, was asked');
});

test('R17: the same key with a different request is 400', async (t) => {
  const account = await gateway.fund(500);
  await later(gateway, account, { key: 'k' });
  const others = [
    { text: 'Hello world!' },
    { json: { model: 'provider-a/tts-1-hd' } },
    { json: { voice: 'provider-a_nova' } },
    { json: { speed: 1.01 } },
    { json: { storeAudio: false } },
    { query: '&storeAudio=false' },
  ];
  for (const other of others) {
    const reply = await later(gateway, account, { key: 'k', ...other });
    t.strictSame([reply.status, reply.json.error.code], [400, 'INVALID_REQUEST'], JSON.stringify(other));
    t.equal(reply.json.error.details.field, 'idempotency-key');
  }
  t.equal(await gateway.balance(account), FUNDS - PRICE);
});

test('R17: a key belongs to its account, and each other request is a new job', async (t) => {
  const [one, two] = [await gateway.fund(500), await gateway.fund(500)];
  const replies = [
    await later(gateway, one, { key: 'k' }),
    await later(gateway, two, { key: 'k' }),
    await later(gateway, two, { key: 'K' }),
    await later(gateway, two, { key: 'k'.repeat(512) }),
    await later(gateway, two),
    await later(gateway, two),
  ];
  t.equal(new Set(replies.map((reply) => reply.json.jobId)).size, replies.length);
  const rows = [...(await jobs(one)), ...(await jobs(two))];
  const hashes = rows.map((row) => row.idempotency_key?.toString('hex')).filter((hash) => hash !== undefined);
  t.equal(new Set(hashes).size, 4, 'equal keys of two accounts have different hashes');
  for (const hash of hashes) t.match(hash, /^[0-9a-f]{64}$/);
});

test('R17: of twenty parallel requests with one key, only one becomes a job with a hold', async (t) => {
  for (const [isEqual, texts] of [
    [true, Array<string>(20).fill('Hello world')],
    [false, Array.from({ length: 20 }, (_, index) => `Hello world${String.fromCharCode(65 + index)}`)],
  ] as const) {
    const account = await gateway.fund(500);
    const replies = await Promise.all(texts.map((text) => later(gateway, account, { key: 'k', text })));
    const made = replies.filter(({ status }) => status === 202);
    t.equal(made.length, isEqual ? 20 : 1);
    t.ok(replies.every(({ status }) => status === 202 || status === 400));
    t.equal(new Set(made.map(({ json }) => json.jobId)).size, 1);
    t.strictSame([(await jobs(account)).length, (await entries(account)).length], [1, 1]);
    t.equal(await gateway.balance(account), isEqual ? FUNDS - PRICE : FUNDS - PRICE - 18n);
  }
  t.strictSame(await audit(gateway.db), []);
});

test('R6: a request is asynchronous on demand or from 20000 characters', async (t) => {
  const found = [1, 19_999, 20_000].map((characters) => isAsynchronous(false, characters));
  t.strictSame([...found, isAsynchronous(true, 1)], [false, false, true, true]);
});
