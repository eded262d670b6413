import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { ASYNC_TEXT_LENGTH } from '../../src/config/speech-limits.ts';
import { isAsynchronous } from '../../src/jobs/job.ts';
import { audit } from '../../src/ledger/audit.ts';
import { BASE_URL, type Gateway, startGateway } from '../support/gateway.ts';
import { later } from '../support/jobs.ts';

const PRICE = 198n;
const FUNDS = 5_000_000n;

/** Without a worker, so that jobs stay as they were accepted. */
const start = (t: Test) => startGateway(t);

const jobs = (gateway: Gateway) => gateway.db.selectFrom('job').selectAll().execute();
const entries = async (gateway: Gateway) =>
  (
    await sql<{ key: string; payload: object }>`select key, payload from graphile_worker._private_jobs`.execute(
      gateway.db,
    )
  ).rows;

const UUID_V4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

test('async=true returns 202 with a queued job and debits its price at once', async (t) => {
  const gateway = await start(t);
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
  const [entry, ...rest] = await entries(gateway);
  t.strictSame(entry, { key: job.jobId, payload: { jobId: job.jobId } }, "the queue knows the job's id only");
  t.strictSame(rest, []);
  t.strictSame(await audit(gateway.db), []);
});

test('R2: POST and GET make the same job, and storeAudio=false wins', async (t) => {
  const gateway = await start(t);
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
  const gateway = await start(t);
  const headers = { 'x-credit-account': await gateway.fund(500) };
  const post = { method: 'POST', headers, json: { text: 'Hello world' } };
  for (const async of ['0', '1', '', 'TRUE', 'maybe']) {
    const challenge = await gateway.call(`/tts?async=${async}`, { ...post, headers: {} });
    t.equal(challenge.status, 402, `POST async=${async}`);
    const got = await gateway.call(`/tts?text=Hello+world&async=${async}`);
    t.equal(got.status, 402, `GET async=${async}`);
    // The provider can't be reached: this was asked at once, and no job was made.
    t.equal((await gateway.call(`/tts?async=${async}`, post)).json.error.code, 'TTS_UNAVAILABLE');
  }
  t.strictSame(await jobs(gateway), []);
  for (const storeAudio of ['0', '1', '', 'FALSE', 'no']) {
    for (const [path, call] of [
      [`/tts?async=true&storeAudio=${storeAudio}`, post],
      [`/tts?async=true&text=Hello+world&storeAudio=${storeAudio}`, { headers }],
    ] as const) {
      const reply = await gateway.call(path, call);
      t.equal(reply.status, 202, path);
      const row = (await jobs(gateway)).find(({ id }) => id === reply.json.jobId);
      t.equal(row?.store_audio, true, path);
    }
  }
});

test('R7: nothing is queued or debited unless every check passes', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  const refused: [path: string, call: object, status: number, code: string][] = [
    ['/tts?async=true', { json: { text: ' ' }, headers }, 400, 'INVALID_REQUEST'],
    ['/tts?async=true', { json: { text: 'a', model: 'x/y' }, headers }, 400, 'UNKNOWN_TTS_MODEL'],
    ['/tts?async=true', { json: { text: 'a', voice: 'nova' }, headers }, 400, 'INVALID_VOICE'],
    ['/tts?async=true', { json: { text: 'a', speed: 3 }, headers }, 400, 'INVALID_SPEED'],
    ['/tts?async=true', { json: { text: 'a'.repeat(4097) }, headers }, 413, 'TEXT_TOO_LONG'],
    ['/tts?async=true', { json: { text: 'a' }, headers: { ...headers, 'x-x402-nonce': '1' } }, 400, 'INVALID_REQUEST'],
    ['/tts?async=true&async=true', { json: { text: 'a' }, headers }, 400, 'INVALID_REQUEST'],
    [
      '/tts?async=true',
      { json: { text: 'a' }, headers: { ...headers, 'idempotency-key': 'k'.repeat(513) } },
      400,
      'INVALID_REQUEST',
    ],
    ['/tts?async=true', { json: { text: 'a' } }, 402, 'PAYMENT_REQUIRED'],
    [
      '/tts?async=true',
      { json: { text: 'a' }, headers: { 'x-credit-account': randomUUID() } },
      402,
      'PAYMENT_REQUIRED',
    ],
    ['/tts?async=true', { json: { text: 'a' }, headers: { 'x-credit-account': 'nobody' } }, 402, 'PAYMENT_REQUIRED'],
    [
      '/tts?async=true',
      { json: { text: 'a' }, headers: { 'x-credit-account': 'nobody', 'idempotency-key': 'k' } },
      402,
      'PAYMENT_REQUIRED',
    ],
    [
      '/tts?async=true',
      { json: { text: 'a' }, headers: { 'x-credit-account': randomUUID(), 'idempotency-key': 'k' } },
      402,
      'PAYMENT_REQUIRED',
    ],
  ];
  for (const [path, call, status, code] of refused) {
    const reply = await gateway.call(path, { method: 'POST', ...call });
    t.equal(reply.status, status, JSON.stringify(call).slice(0, 200));
    t.equal(reply.json.error.code, code);
  }
  const poor = await gateway.fund(500);
  await gateway.db.updateTable('account').set({ balance_micro_usd: 197n }).where('id', '=', poor).execute();
  const reply = await later(gateway, poor);
  t.equal(reply.status, 402);
  t.strictSame(
    [reply.json.error.details.reason, reply.json.error.details.priceMicroUsd, reply.json.error.details.balanceMicroUsd],
    ['insufficient_funds', 198, 197],
  );
  t.strictSame(await jobs(gateway), []);
  t.strictSame(await entries(gateway), []);
  t.equal(await gateway.balance(account), FUNDS);
});

test('no job is accepted without a speech provider or with the card flow off', async (t) => {
  const silent = await startGateway(t, { SPEECH_BASE_URL: '' });
  const reply = await later(silent, await silent.fund(500));
  t.strictSame([reply.status, reply.json.error.code], [503, 'TTS_PROVIDER_NOT_CONFIGURED']);
  const free = await startGateway(
    t,
    { STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' },
    { databaseUrl: silent.databaseUrl },
  );
  const refused = await later(free, await free.fund(500));
  t.strictSame([refused.status, refused.json.error.code], [503, 'CONFIG_ERROR']);
});

test('R57: an unknown job or an id that is not a UUID is 404', async (t) => {
  const gateway = await start(t);
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
  const gateway = await start(t);
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
  t.equal((await jobs(gateway)).length, 1);
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('R17: the same key with a different request is 400', async (t) => {
  const gateway = await start(t);
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
  const gateway = await start(t);
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
  const rows = await jobs(gateway);
  const hashes = rows.map((row) => row.idempotency_key?.toString('hex')).filter((hash) => hash !== undefined);
  t.equal(new Set(hashes).size, 4, 'equal keys of two accounts have different hashes');
  for (const hash of hashes) t.match(hash, /^[0-9a-f]{64}$/);
});

test('R17: synchronous requests ignore the key', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const call = { method: 'POST', headers: { 'x-credit-account': account, 'idempotency-key': 'k' } };
  const accepted = await gateway.call('/tts?async=true', { ...call, json: { text: 'one' } });
  t.equal(accepted.status, 202);
  const reply = await gateway.call('/tts?async=false', { ...call, json: { text: 'two' } });
  t.equal(reply.status, 503, 'it was sent to the provider, which is not there');
});

test('R17: twenty equal parallel requests are one job with one hold', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const replies = await Promise.all(Array.from({ length: 20 }, () => later(gateway, account, { key: 'k' })));
  t.strictSame([...new Set(replies.map((reply) => reply.status))], [202]);
  t.equal(new Set(replies.map((reply) => reply.json.jobId)).size, 1);
  t.equal((await jobs(gateway)).length, 1);
  t.equal((await entries(gateway)).length, 1);
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('R17: of different parallel requests with one key, only one becomes a job', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const replies = await Promise.all(
    Array.from({ length: 10 }, (_, index) => later(gateway, account, { key: 'k', text: `text ${index}` })),
  );
  const statuses = replies.map((reply) => reply.status).sort();
  t.strictSame(statuses, [202, ...Array.from({ length: 9 }, () => 400)]);
  t.equal((await jobs(gateway)).length, 1);
  t.equal(await gateway.balance(account), FUNDS - 6n * 18n);
});

test('a retry finds its job even if the account is empty by then', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  const first = await later(gateway, account, { key: 'k' });
  const balance = await gateway.balance(account);
  await gateway.db.updateTable('account').set({ balance_micro_usd: 0n }).where('id', '=', account).execute();
  const again = await later(gateway, account, { key: 'k' });
  t.equal(again.status, 202);
  t.equal(again.json.jobId, first.json.jobId);
  t.equal(again.headers.get('x-credit-balance'), '0');
  await gateway.db.updateTable('account').set({ balance_micro_usd: balance }).where('id', '=', account).execute();
});

test('R17: a database constraint allows one job per key', async (t) => {
  const gateway = await start(t);
  const account = await gateway.fund(500);
  await later(gateway, account, { key: 'k' });
  const other = await later(gateway, account);
  const [first] = (await jobs(gateway)).filter((row) => row.idempotency_key !== null);
  await t.rejects(
    gateway.db
      .updateTable('job')
      .set({ idempotency_key: first?.idempotency_key, request_hash: first?.request_hash })
      .where('id', '=', other.json.jobId)
      .execute(),
    /job_idempotency/,
  );
});

test('R6: a request is asynchronous on demand or from 20000 characters', async (t) => {
  t.equal(ASYNC_TEXT_LENGTH, 20_000);
  const rows: [asked: boolean, characters: number, expected: boolean][] = [
    [false, 1, false],
    [false, 4096, false],
    [false, 19_999, false],
    [false, 20_000, true],
    [false, 20_001, true],
    [true, 1, true],
    [true, 20_000, true],
  ];
  for (const [asked, characters, expected] of rows) {
    t.equal(isAsynchronous(asked, characters), expected, `${asked}, ${characters} characters`);
  }
});
