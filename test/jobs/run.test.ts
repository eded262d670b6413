import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { MAX_ATTEMPTS, retryDelayMs } from '../../src/jobs/run-job.ts';
import { audit } from '../../src/ledger/audit.ts';
import { BASE_URL, type Gateway, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { silentMp3, silentWav } from '../support/silent-audio.ts';
import {
  body,
  ControlledStream,
  cutChunked,
  garbage,
  hangBeforeHeaders,
  type Mode,
  mp3,
  openAiError,
  startStubUpstream,
  testUpstream,
  tooManyRequests,
  wav,
} from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';

const PRICE = 198n;
const FUNDS = 5_000_000n;

// They wait for retries most of the time.
t.jobs = 3;

async function start(t: Test, env: Record<string, string> = {}, options: { worker?: boolean } = {}) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, { worker: true, ...options });
  return { upstream, gateway, account: await gateway.fund(500) };
}

const row = (gateway: Gateway, id: string) =>
  gateway.db.selectFrom('job').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

async function holdOf(gateway: Gateway, jobId: string) {
  const { hold_id } = await row(gateway, jobId);
  return gateway.db.selectFrom('transfer').selectAll().where('id', '=', hold_id).executeTakeFirstOrThrow();
}

/** As if the job had been waiting: its next attempt is due now. */
async function hurry(gateway: Gateway, jobId: string, attempts?: number) {
  await gateway.db
    .updateTable('job')
    .set({ run_at: sql<Date>`now()`, ...(attempts !== undefined && { attempts }) })
    .where('id', '=', jobId)
    .execute();
  await sql`select graphile_worker.add_job('speak', json_build_object('jobId', ${jobId}::text), job_key => ${jobId}::text)`.execute(
    gateway.db,
  );
}

const CANARY = 'Hello wo-canary';

const stored = async (gateway: Gateway) =>
  (await readdir(join(gateway.config.dataDir, 'audio'), { recursive: true }).catch(() => [])).filter(
    (name) => name.includes('/') || name.endsWith('.partial'),
  );

test('R18: a completed job is stored and captured, and its text is erased', async (t) => {
  const { upstream, gateway, account } = await start(t);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const { jobId } = (await later(gateway, account, { text: CANARY })).json;
  await drip.opened;

  const processing = (await untilJob(gateway, jobId, 'processing')).json;
  t.ok(processing.startedAt >= processing.createdAt && processing.updatedAt >= processing.startedAt);
  t.strictSame(
    [processing.completedAt, processing.error, processing.result, processing.links.audio],
    [null, null, null, null],
  );
  t.equal((await holdOf(gateway, jobId)).state, 'pending');
  t.equal((await row(gateway, jobId)).text, CANARY);
  t.strictSame(await audit(gateway.db), []);

  const audio = silentMp3(500);
  await drip.write(audio);
  drip.end();
  const reply = await untilJob(gateway, jobId, 'completed', 'failed');
  const job = reply.json;
  const audioUrl = `${BASE_URL}/tts/jobs/${jobId}/audio`;
  t.equal(job.status, 'completed');
  t.equal(job.error, null);
  t.strictSame(job.result, { audioUrl, stored: true, mimeType: 'audio/mpeg', sizeBytes: audio.length });
  t.strictSame(job.links, { status: `${BASE_URL}/tts/jobs/${jobId}`, audio: audioUrl });
  t.ok(job.completedAt >= job.startedAt);
  t.equal((await holdOf(gateway, jobId)).state, 'posted');
  t.equal((await row(gateway, jobId)).text, null);
  t.equal(await gateway.balance(account), FUNDS - 15n * 18n);
  t.strictSame((await gateway.call(`/tts/jobs/${jobId}/audio`)).bytes, audio);
  t.strictSame(
    upstream.requests.map(({ body }) => body),
    [{ model: 'tts-1', input: CANARY, voice: 'alloy', response_format: 'mp3' }],
  );
  t.strictSame(await audit(gateway.db), []);
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
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const good = (await later(gateway, account, { text: CANARY, key: CANARY })).json;
  await drip.opened;
  t.strictSame(await texts(), ['public.job']);
  await drip.write(silentMp3(100));
  drip.end();
  await untilJob(gateway, good.jobId, 'completed');
  upstream.mode = openAiError(400, CANARY);
  const bad = (await later(gateway, account, { text: CANARY })).json;
  const failed = await untilJob(gateway, bad.jobId, 'failed');
  t.ok(!failed.text.includes(CANARY));
  t.strictSame(await texts(), []);
});

test('storeAudio=false completes and charges a job without storing audio', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account, { query: '&storeAudio=false' })).json;
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.equal(job.status, 'completed');
  t.strictSame(job.result, { audioUrl: null, stored: false, mimeType: 'audio/mpeg', sizeBytes: 16_128 });
  t.equal(job.links.audio, null);
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio`);
  t.strictSame([audio.status, audio.json.error.code], [410, 'AUDIO_NOT_STORED']);
  t.strictSame(await stored(gateway), []);
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('R56: a streamed WAV from the provider is served as audio/wav with its real sizes', async (t) => {
  const { upstream, gateway, account } = await start(t);
  const streamed = silentWav(100);
  for (const at of [4, 40]) streamed.writeUInt32LE(0, at);
  upstream.mode = body(streamed, { framing: 'chunked' });
  const { jobId } = (await later(gateway, account)).json;
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.equal(job.result.mimeType, 'audio/wav');
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio`);
  t.equal(audio.headers.get('content-type'), 'audio/wav');
  t.strictSame(audio.bytes, silentWav(100));
  t.equal(audio.headers.get('content-disposition'), `inline; filename="speech-${jobId}.wav"`);
});

test('a permanent failure fails the job at once and voids its hold', async (t) => {
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
    t.equal(reply.json.status, 'failed');
    t.equal(reply.json.error.code, code);
    t.match(reply.json.error.message, / Change the request, or ask the operator\. The job was not charged\.$/);
    t.notMatch(reply.text, /secret|stack|node:/);
    t.strictSame([reply.json.result, reply.json.links.audio], [null, null]);
    t.ok(reply.json.completedAt);
    t.equal(upstream.requests.length, before + 1, 'one attempt');
    t.equal((await holdOf(gateway, jobId)).state, 'voided');
    t.equal((await row(gateway, jobId)).text, null);
    t.equal((await gateway.call(`/tts/jobs/${jobId}/audio`)).status, 404, 'R18');
  }
  t.equal(await gateway.balance(account), FUNDS);
  t.strictSame(await audit(gateway.db), []);
});

test('synthesis ends at its deadline', async (t) => {
  const { upstream, gateway, account } = await start(t, { SPEECH_TIMEOUT_MS: '200' }, { worker: false });
  upstream.mode = hangBeforeHeaders();
  const { jobId } = (await later(gateway, account)).json;
  await hurry(gateway, jobId, 4);
  gateway.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.strictSame([job.status, job.error.code], ['failed', 'TTS_UNAVAILABLE']);
});

test('a job whose audio cannot be stored is retried, not captured', async (t) => {
  const { gateway, account } = await start(t, {}, { worker: false });
  await writeFile(join(gateway.config.dataDir, 'audio'), 'in the way of the directory');
  const { jobId } = (await later(gateway, account)).json;
  gateway.app.worker?.start();
  await until(async () => {
    const { state, attempts } = await row(gateway, jobId);
    return state === 'queued' && attempts > 0;
  });
  t.equal((await holdOf(gateway, jobId)).state, 'pending');
  await hurry(gateway, jobId, 4);
  const reply = await untilJob(gateway, jobId, 'completed', 'failed');
  t.strictSame([reply.json.status, reply.json.error.code], ['failed', 'INTERNAL_ERROR']);
  t.ok(!reply.text.includes(gateway.config.dataDir));
  t.equal(await gateway.balance(account), FUNDS);
  t.strictSame(await audit(gateway.db), []);
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
  t.equal(await voidExpiredHolds(gateway.db), 0);
  t.strictSame(await audit(gateway.db), []);
  gateway.app.worker?.start();
  t.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('a transient failure requeues the job with its hold, until the time that the provider named', async (t) => {
  const { upstream, gateway, account } = await start(t);
  const attempts = [openAiError(500), tooManyRequests('120'), wav(100)];
  upstream.mode = (request, response) => attempts[upstream.requests.length - 1]?.(request, response);
  const { jobId } = (await later(gateway, account)).json;
  await upstream.waitForRequests(2);
  await untilJob(gateway, jobId, 'queued');
  const waiting = await row(gateway, jobId);
  t.equal(Number(waiting.run_at) - Number(waiting.updated_at), 120_000);
  t.equal(waiting.attempts, 2);
  t.equal((await gateway.call(`/tts/jobs/${jobId}/audio`)).json.error.code, 'JOB_NOT_READY');
  t.equal((await holdOf(gateway, jobId)).state, 'pending');
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
  await hurry(gateway, jobId);
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.equal(job.status, 'completed');
  t.equal(upstream.requests.length, 3);
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('a failed last attempt fails the job and voids its hold', async (t) => {
  const { upstream, gateway, account } = await start(t, {}, { worker: false });
  upstream.mode = openAiError(500);
  const { jobId } = (await later(gateway, account)).json;
  await hurry(gateway, jobId, 4);
  gateway.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.equal(job.status, 'failed');
  t.equal(job.error.code, 'TTS_UPSTREAM_ERROR');
  t.equal(upstream.requests.length, 1);
  t.equal(await gateway.balance(account), FUNDS);
  t.strictSame(await audit(gateway.db), []);
});

test('a job fails if the provider asks for too long a wait', async (t) => {
  const { upstream, gateway, account } = await start(t);
  upstream.mode = tooManyRequests('3600');
  const { jobId } = (await later(gateway, account)).json;
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.strictSame([job.status, job.error.code], ['failed', 'TTS_UNAVAILABLE']);
  t.equal(await gateway.balance(account), FUNDS);
});

test('a job whose workers keep dying is not retried forever', async (t) => {
  const { upstream, gateway, account } = await start(t, {}, { worker: false });
  const { jobId } = (await later(gateway, account)).json;
  await hurry(gateway, jobId, 5);
  gateway.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.strictSame([job.status, job.error.code], ['failed', 'INTERNAL_ERROR']);
  t.equal(upstream.requests.length, 0);
  t.equal(await gateway.balance(account), FUNDS);
  t.strictSame(await audit(gateway.db), []);
});

const MINUTES = 60_000;

test('retry delays triple from one second, and the fifth attempt is the last', async (t) => {
  const rows: [attempt: number, random: number, expected: number | undefined][] = [
    [1, 0, 1_000],
    [1, 1, 1_250],
    [2, 0, 3_000],
    [3, 0, 9_000],
    [4, 0, 27_000],
    [4, 1, 33_750],
    [5, 0, undefined],
    [6, 0, undefined],
  ];
  for (const [attempt, random, expected] of rows) {
    t.equal(retryDelayMs(attempt, 0, undefined, random), expected, `attempt ${attempt}`);
  }
  t.equal(MAX_ATTEMPTS, 5);
});

test('a retry delay is never shorter than the provider asked for', async (t) => {
  t.equal(retryDelayMs(1, 0, 30, 0), 30_000);
  t.equal(retryDelayMs(4, 0, 2, 0), 27_000);
});

test('no attempt begins more than 15 minutes after the first', async (t) => {
  t.equal(retryDelayMs(1, 0, 15 * 60, 0), 15 * MINUTES);
  t.equal(retryDelayMs(1, 0, 15 * 60 + 1, 0), undefined);
  t.equal(retryDelayMs(2, 15 * MINUTES - 3_000, undefined, 0), 3_000);
  t.equal(retryDelayMs(2, 15 * MINUTES - 2_999, undefined, 0), undefined);
  t.equal(retryDelayMs(1, 0, 3600, 0), undefined);
});

test('retry delays and attempts are bounded, whatever the provider says', async () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 100 }),
      fc.integer({ min: 0, max: 10 * 3_600_000 }),
      fc.option(fc.integer({ min: 1, max: 3600 }), { nil: undefined }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      (attempt, elapsedMs, retryAfter, random) => {
        const delay = retryDelayMs(attempt, elapsedMs, retryAfter, random);
        if (delay === undefined) return;
        assert.ok(attempt < MAX_ATTEMPTS);
        assert.ok(delay >= 1_000 && delay >= (retryAfter ?? 0) * 1_000);
        assert.ok(elapsedMs + delay <= 15 * MINUTES);
      },
    ),
  );
});

test('at most JOB_CONCURRENCY jobs run at the same time', async (t) => {
  const { upstream, gateway, account } = await start(t, { JOB_CONCURRENCY: '3' });
  const open: ControlledStream[] = [];
  upstream.mode = (request, response) => {
    const drip = new ControlledStream();
    open.push(drip);
    drip.mode(request, response);
  };
  const jobs = [];
  for (let index = 0; index < 5; index++) jobs.push((await later(gateway, account, { text: `text ${index}` })).json);
  await upstream.waitForRequests(3);
  const states = async () =>
    (await gateway.db.selectFrom('job').select('state').orderBy('state').execute()).map(({ state }) => state);
  t.strictSame(await states(), ['processing', 'processing', 'processing', 'queued', 'queued']);
  for (let index = 0; index < 5; index++) {
    await upstream.waitForRequests(index + 1);
    await open[index]?.write(silentMp3(100));
    open[index]?.end();
  }
  for (const { jobId } of jobs) t.equal((await untilJob(gateway, jobId, 'completed')).json.status, 'completed');
  t.equal(upstream.requests.length, 5);
  t.strictSame(await audit(gateway.db), []);
});

test('a stopping worker finishes its job first', async (t) => {
  const { upstream, gateway, account } = await start(t, { JOB_CONCURRENCY: '1' });
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const { jobId } = (await later(gateway, account)).json;
  await drip.opened;
  const waiting = (await later(gateway, account, { text: 'not begun' })).json;
  await drip.write(silentMp3(100));
  const stopped = gateway.app.worker?.stop();
  drip.end();
  await stopped;
  t.equal((await row(gateway, jobId)).state, 'completed');
  t.equal((await row(gateway, waiting.jobId)).state, 'queued');
  t.strictSame(await audit(gateway.db), []);
});

test('metrics show waiting and running jobs and the ends of their holds', async (t) => {
  const { upstream, gateway, account } = await start(t, {}, { worker: false });
  const metrics = async () => (await gateway.app.admin.inject('/metrics')).body;
  const first = (await later(gateway, account, { key: 'k' })).json;
  await later(gateway, account, { key: 'k' });
  t.match(await metrics(), /^speechgate_queued_jobs 1$/m);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  gateway.app.worker?.start();
  await drip.opened;
  const running = await metrics();
  t.match(running, /^speechgate_queued_jobs 0$/m);
  t.match(running, /^speechgate_processing_jobs 1$/m);
  await drip.write(silentMp3(100));
  drip.end();
  await untilJob(gateway, first.jobId, 'completed');
  upstream.mode = openAiError(400);
  const second = (await later(gateway, account)).json;
  await untilJob(gateway, second.jobId, 'failed');
  const placed = /speechgate_holds_total{flow="card",event="placed"} 2$/m;
  // Counted right after the transaction that a caller may already see.
  await until(async () => /speechgate_holds_total{flow="card",event="voided"} 1$/m.test(await metrics()));
  const text = await metrics();
  t.match(text, /^speechgate_processing_jobs 0$/m);
  t.match(text, placed, 'a repeat places no hold');
  t.match(text, /speechgate_holds_total{flow="card",event="captured"} 1$/m);
});

test('log lines about a job carry its trace id, and the cause of a failure', async (t) => {
  const upstream = await startStubUpstream({ mode: cutChunked() });
  t.teardown(() => upstream.close());
  const env = { SPEECH_BASE_URL: upstream.url, LOG_LEVEL: 'info' };
  const gateway = await startGateway(t, env, { worker: true });
  const account = await gateway.fund(500);
  const accepted = await later(gateway, account);
  const { jobId } = accepted.json;
  await upstream.waitForRequests(1);
  upstream.mode = mp3();
  await untilJob(gateway, jobId, 'completed');
  await until(() => gateway.log.some(({ end }) => end === 'completed'));
  const lines = gateway.log.filter((line) => line.job === jobId);
  const traceId = accepted.headers.get('x-trace-id');
  const ended =
    'a job attempt ended; no action is needed. The member end says how: completed (charged), failed (not charged), retry or given back (runs again)';
  t.ok(lines.every((line) => line.traceId === traceId));
  const [failed] = lines.flatMap(({ err }) => (err ? [err as { failure?: string; upstream?: string }] : []));
  t.strictSame([failed?.failure, failed?.upstream], ['broken_off', 'default']);
  t.strictSame(
    lines
      .filter(({ err }) => !err)
      .map(({ msg, attempt, end, chargedMicroUsd }) => [msg, attempt, end, chargedMicroUsd]),
    [
      ['a job attempt started; no action is needed', 1, undefined, undefined],
      [ended, 1, 'retry', undefined],
      ['a job attempt started; no action is needed', 2, undefined, undefined],
      [ended, 2, 'completed', 198],
    ],
  );
});
