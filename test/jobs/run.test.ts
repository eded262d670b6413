import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { BASE_URL, type Gateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { Drip, garbage, hangBeforeHeaders, type Mode, openAiError, silentMp3, wav } from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';
import { FUNDS, holdOf, hurry, PRICE, row, start, untilRunAtIsAhead } from './running.ts';

const CANARY = 'Hello wo-canary';

const stored = async (gateway: Gateway) =>
  (await readdir(join(gateway.config.dataDir, 'audio'), { recursive: true }).catch(() => [])).filter(
    (name) => name.includes('/') || name.endsWith('.partial'),
  );

test('queued -> processing -> completed: stored, captured, and the text is erased (R18)', async (t) => {
  const { upstream, gateway, account } = await start(t);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const { jobId } = (await later(gateway, account, { text: CANARY })).json;
  await drip.opened;

  const processing = (await untilJob(gateway, jobId, 'processing')).json;
  assert.ok(processing.startedAt >= processing.createdAt && processing.updatedAt >= processing.startedAt);
  assert.deepEqual(
    [processing.completedAt, processing.error, processing.result, processing.links.audio],
    [null, null, null, null],
  );
  assert.equal((await holdOf(gateway, jobId)).state, 'pending');
  assert.equal((await row(gateway, jobId)).text, CANARY);
  assert.deepEqual(await audit(gateway.db), []);

  const audio = silentMp3(500);
  await drip.write(audio);
  drip.end();
  const reply = await untilJob(gateway, jobId, 'completed', 'failed');
  const job = reply.json;
  const audioUrl = `${BASE_URL}/tts/jobs/${jobId}/audio`;
  assert.equal(job.status, 'completed');
  assert.equal(job.error, null);
  assert.deepEqual(job.result, { audioUrl, stored: true, mimeType: 'audio/mpeg', sizeBytes: audio.length });
  assert.deepEqual(job.links, { status: `${BASE_URL}/tts/jobs/${jobId}`, audio: audioUrl });
  assert.ok(job.completedAt >= job.startedAt);
  assert.equal((await holdOf(gateway, jobId)).state, 'posted');
  assert.equal((await row(gateway, jobId)).text, null);
  assert.equal(await gateway.balance(account), FUNDS - 15n * 18n);
  assert.deepEqual((await gateway.call(`/tts/jobs/${jobId}/audio`)).bytes, audio);
  assert.deepEqual(
    upstream.requests.map(({ body }) => body),
    [{ model: 'tts-1', input: CANARY, voice: 'alloy', response_format: 'mp3' }],
  );
  assert.deepEqual(await audit(gateway.db), []);
});

test('R18: after a job has ended, its text is nowhere in the database', async (t) => {
  const { upstream, gateway, account } = await start(t);
  const texts = async () => {
    const tables = await sql<{ name: string }>`
      select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_schema in ('public', 'graphile_worker') and table_type = 'BASE TABLE'`.execute(gateway.db);
    const found: string[] = [];
    for (const { name } of tables.rows) {
      const { rows } = await sql`select from ${sql.raw(name)} t where t::text like ${`%${CANARY}%`}`.execute(
        gateway.db,
      );
      if (rows.length > 0) found.push(name);
    }
    return found;
  };
  const drip = new Drip();
  upstream.mode = drip.mode;
  const good = (await later(gateway, account, { text: CANARY, key: CANARY })).json;
  await drip.opened;
  assert.deepEqual(await texts(), ['public.job']);
  await drip.write(silentMp3(100));
  drip.end();
  await untilJob(gateway, good.jobId, 'completed');
  upstream.mode = openAiError(400, CANARY);
  const bad = (await later(gateway, account, { text: CANARY })).json;
  const failed = await untilJob(gateway, bad.jobId, 'failed');
  assert.ok(!failed.text.includes(CANARY));
  assert.deepEqual(await texts(), []);
});

test('storeAudio=false: completed and charged without an audio link, and no object is ever written', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account, { query: '&storeAudio=false' })).json;
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(job.status, 'completed');
  assert.deepEqual(job.result, { audioUrl: null, stored: false, mimeType: 'audio/mpeg', sizeBytes: 16_128 });
  assert.equal(job.links.audio, null);
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio`);
  assert.deepEqual([audio.status, audio.json.error.code], [410, 'AUDIO_NOT_STORED']);
  assert.deepEqual(await stored(gateway), []);
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R56: a WAV of the provider is passed on as audio/wav', async (t) => {
  const { upstream, gateway, account } = await start(t);
  upstream.mode = wav(100);
  const { jobId } = (await later(gateway, account)).json;
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(job.result.mimeType, 'audio/wav');
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio`);
  assert.equal(audio.headers.get('content-type'), 'audio/wav');
  assert.equal(audio.headers.get('content-disposition'), `inline; filename="speech-${jobId}.wav"`);
});

test('a permanent fault fails the job at once: the money is back, the error says why and nothing of the provider', async (t) => {
  const { upstream, gateway, account } = await start(t);
  const faults: [Mode, code: string][] = [
    [openAiError(400, 'secret of the provider'), 'TTS_UPSTREAM_ERROR'],
    [garbage(), 'TTS_UPSTREAM_ERROR'],
  ];
  for (const [mode, code] of faults) {
    upstream.mode = mode;
    const before = upstream.requests.length;
    const { jobId } = (await later(gateway, account)).json;
    const reply = await untilJob(gateway, jobId, 'completed', 'failed');
    assert.equal(reply.json.status, 'failed');
    assert.equal(reply.json.error.code, code);
    assert.match(reply.json.error.message, /not charged/);
    assert.doesNotMatch(reply.text, /secret|stack|node:/);
    assert.deepEqual([reply.json.result, reply.json.links.audio], [null, null]);
    assert.ok(reply.json.completedAt);
    assert.equal(upstream.requests.length, before + 1, 'one attempt');
    assert.equal((await holdOf(gateway, jobId)).state, 'voided');
    assert.equal((await row(gateway, jobId)).text, null);
    assert.equal((await gateway.call(`/tts/jobs/${jobId}/audio`)).status, 404, 'R18');
  }
  assert.equal(await gateway.balance(account), FUNDS);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a synthesis ends with its deadline', async (t) => {
  const { upstream, gateway, account } = await start(t, { SPEECH_TIMEOUT_MS: '200' }, { worker: false });
  upstream.mode = hangBeforeHeaders();
  const { jobId } = (await later(gateway, account)).json;
  await hurry(gateway, jobId, 4);
  gateway.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.deepEqual([job.status, job.error.code], ['failed', 'TTS_UNAVAILABLE']);
});

test('nothing is completed or captured when the audio can not be stored; the attempt is repeated', async (t) => {
  const { gateway, account } = await start(t, {}, { worker: false });
  await writeFile(join(gateway.config.dataDir, 'audio'), 'in the way of the directory');
  const { jobId } = (await later(gateway, account)).json;
  gateway.app.worker?.start();
  const waiting = await untilRunAtIsAhead(gateway, jobId);
  assert.equal(waiting.state, 'queued');
  assert.equal((await holdOf(gateway, jobId)).state, 'pending');
  await hurry(gateway, jobId, 4);
  const reply = await untilJob(gateway, jobId, 'completed', 'failed');
  assert.deepEqual([reply.json.status, reply.json.error.code], ['failed', 'INTERNAL_ERROR']);
  assert.ok(!reply.text.includes(gateway.config.dataDir));
  assert.equal(await gateway.balance(account), FUNDS);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a job that waits longer than any lease keeps its hold', async (t) => {
  const { gateway, account } = await start(t, {}, { worker: false });
  const { voidExpiredHolds } = await import('../../src/ledger/hold.ts');
  const { jobId } = (await later(gateway, account)).json;
  await unguarded(gateway.db, (db) =>
    sql`
      update transfer set created_at = created_at - interval '30 days', ended_at = ended_at - interval '30 days'`.execute(
      db,
    ),
  );
  await sql`update job set created_at = now() - interval '30 days', run_at = now() - interval '30 days'`.execute(
    gateway.db,
  );
  assert.equal(await voidExpiredHolds(gateway.db), 0);
  assert.deepEqual(await audit(gateway.db), []);
  gateway.app.worker?.start();
  assert.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});
