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
  testUpstream,
  tooManyRequests,
  wav,
} from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';

const PRICE = 198n;
const FUNDS = 5_000_000n;

/** Runs the jobs of all tests that need no other settings. */
const running = await start(t, { LOG_LEVEL: 'info' });

async function scene() {
  running.upstream.requests.length = 0;
  return { ...running, account: await running.gateway.fund(500) };
}

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
  const { upstream, gateway, account } = await scene();
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
  const { upstream, gateway, account } = await scene();
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
  const { upstream, gateway, account } = await scene();
  upstream.mode = mp3();
  const before = await stored(gateway);
  const { jobId } = (await later(gateway, account, { query: '&storeAudio=false' })).json;
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.equal(job.status, 'completed');
  t.strictSame(job.result, { audioUrl: null, stored: false, mimeType: 'audio/mpeg', sizeBytes: 16_128 });
  t.equal(job.links.audio, null);
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio`);
  t.strictSame([audio.status, audio.json.error.code], [410, 'AUDIO_NOT_STORED']);
  t.strictSame(await stored(gateway), before);
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('R56: a streamed WAV from the provider is served as audio/wav with its real sizes', async (t) => {
  const { upstream, gateway, account } = await scene();
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
  const { upstream, gateway, account } = await scene();
  for (const mode of [openAiError(400, 'secret of the provider'), garbage()]) {
    upstream.mode = mode;
    const before = upstream.requests.length;
    const { jobId } = (await later(gateway, account)).json;
    const reply = await untilJob(gateway, jobId, 'completed', 'failed');
    t.strictSame([reply.json.status, reply.json.error.code], ['failed', 'TTS_UPSTREAM_ERROR']);
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
  const { upstream, gateway, account } = await scene();
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

test('a job fails after its last attempt, and its hold is voided', async (t) => {
  const { upstream, gateway, account } = await start(t, { SPEECH_TIMEOUT_MS: '300' }, { worker: false });
  const cases: [text: string, attempts: number, mode: Mode, code: string][] = [
    ['an error', 4, openAiError(500), 'TTS_UPSTREAM_ERROR'],
    ['silence until the deadline', 4, hangBeforeHeaders(), 'TTS_UNAVAILABLE'],
    ['too long a wait', 0, tooManyRequests('3600'), 'TTS_UNAVAILABLE'],
    ['workers that keep dying', 5, mp3(), 'INTERNAL_ERROR'],
  ];
  upstream.mode = (request, response) => cases.find(([text]) => text === request.body?.input)?.[2](request, response);
  const ids: string[] = [];
  for (const [text, attempts] of cases) {
    const { jobId } = (await later(gateway, account, { text })).json;
    await hurry(gateway, jobId, attempts);
    ids.push(jobId);
  }
  gateway.app.worker?.start();
  for (const [at, [text, , , code]] of cases.entries()) {
    const job = (await untilJob(gateway, ids[at] as string, 'completed', 'failed')).json;
    t.strictSame([job.status, job.error.code], ['failed', code], text);
  }
  t.equal(upstream.requests.length, 3, 'one attempt each, and none after the fifth');
  t.equal(await gateway.balance(account), FUNDS);
  t.strictSame(await audit(gateway.db), []);
});

const MINUTES = 60_000;

test('retry delays triple from one second, within 15 minutes and five attempts', async (t) => {
  const rows: [attempt: number, elapsedMs: number, retryAfter: number | undefined, expected: number | undefined][] = [
    [1, 0, undefined, 1_000],
    [2, 0, undefined, 3_000],
    [4, 0, undefined, 27_000],
    [5, 0, undefined, undefined],
    [1, 0, 30, 30_000],
    [4, 0, 2, 27_000],
    [1, 0, 15 * 60, 15 * MINUTES],
    [1, 0, 15 * 60 + 1, undefined],
    [2, 15 * MINUTES - 3_000, undefined, 3_000],
    [2, 15 * MINUTES - 2_999, undefined, undefined],
  ];
  for (const [attempt, elapsedMs, retryAfter, expected] of rows)
    t.equal(retryDelayMs(attempt, elapsedMs, retryAfter, 0), expected, `attempt ${attempt} after ${elapsedMs} ms`);
  t.equal(retryDelayMs(4, 0, undefined, 1), 33_750, 'up to a quarter more');
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

test('at most JOB_CONCURRENCY jobs run at once, and a stopping worker finishes them first', async (t) => {
  const { upstream, gateway, account } = await start(t, { JOB_CONCURRENCY: '3' });
  const open: ControlledStream[] = [];
  upstream.mode = (request, response) => {
    const drip = new ControlledStream();
    open.push(drip);
    drip.mode(request, response);
  };
  for (let index = 0; index < 5; index++) await later(gateway, account, { text: `text ${index}` });
  await upstream.waitForRequests(3);
  const states = async () =>
    (await gateway.db.selectFrom('job').select('state').orderBy('state').execute()).map(({ state }) => state);
  t.strictSame(await states(), ['processing', 'processing', 'processing', 'queued', 'queued']);
  const stopped = gateway.app.worker?.stop();
  for (const drip of open) {
    await drip.write(silentMp3(100));
    drip.end();
  }
  await stopped;
  t.strictSame(await states(), ['completed', 'completed', 'completed', 'queued', 'queued']);
  t.equal(upstream.requests.length, 3);
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
  await sql`update job set updated_at = now() - interval '1 hour'`.execute(gateway.db);
  t.match(await metrics(), /^speechgate_oldest_processing_job_seconds 36\d\d/m, 'the age of a hanging attempt');
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
  const { upstream, gateway, account } = await scene();
  upstream.mode = cutChunked();
  const accepted = await later(gateway, account);
  const { jobId } = accepted.json;
  await upstream.waitForRequests(1);
  upstream.mode = mp3();
  await untilJob(gateway, jobId, 'completed');
  await until(() => gateway.log.some(({ job, end }) => job === jobId && end === 'completed'));
  const lines = gateway.log.filter((line) => line.job === jobId);
  const traceId = accepted.headers.get('x-trace-id');
  t.ok(lines.every((line) => line.traceId === traceId));
  const [failed] = lines.flatMap(({ err }) => (err ? [err as { failure?: string; upstream?: string }] : []));
  t.strictSame([failed?.failure, failed?.upstream], ['broken_off', 'default']);
  t.strictSame(
    lines.filter(({ err }) => !err).map(({ attempt, end, chargedMicroUsd }) => [attempt, end, chargedMicroUsd]),
    [
      [1, undefined, undefined],
      [1, 'retry', undefined],
      [2, undefined, undefined],
      [2, 'completed', 198],
    ],
  );
});
