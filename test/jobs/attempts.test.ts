import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { later, untilJob } from '../support/jobs.ts';
import { openAiError, tooManyRequests, wav } from '../support/stub-upstream.ts';
import { FUNDS, holdOf, hurry, PRICE, start, untilRunAtIsAhead } from './running.ts';

test('a transient fault is tried again: the job is queued with its hold, and then completes', async (t) => {
  const { upstream, gateway, account } = await start(t);
  upstream.mode = openAiError(500);
  const { jobId } = (await later(gateway, account)).json;
  await upstream.waitForRequests(1);
  const waiting = await untilRunAtIsAhead(gateway, jobId);
  assert.equal(waiting.state, 'queued');
  assert.equal(waiting.attempts, 1);
  assert.equal((await holdOf(gateway, jobId)).state, 'pending');
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
  upstream.mode = (request, response) =>
    (upstream.requests.length > 2 ? wav(100) : openAiError(503))(request, response);
  await hurry(gateway, jobId);
  await upstream.waitForRequests(2);
  await untilRunAtIsAhead(gateway, jobId);
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(job.status, 'completed', 'the third attempt comes by itself');
  assert.equal(upstream.requests.length, 3);
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('the last attempt fails the job with the last fault, and gives the money back', async (t) => {
  const { upstream, gateway, account } = await start(t, {}, { worker: false });
  upstream.mode = openAiError(500);
  const { jobId } = (await later(gateway, account)).json;
  await hurry(gateway, jobId, 4);
  gateway.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(job.status, 'failed');
  assert.equal(job.error.code, 'TTS_UPSTREAM_ERROR');
  assert.equal(upstream.requests.length, 1);
  assert.equal(await gateway.balance(account), FUNDS);
  assert.deepEqual(await audit(gateway.db), []);
});

test('the provider is not asked again before the time that it named, and the job waits for it', async (t) => {
  const { upstream, gateway, account } = await start(t);
  upstream.mode = tooManyRequests('120');
  const { jobId } = (await later(gateway, account)).json;
  const waiting = await untilRunAtIsAhead(gateway, jobId);
  const { rows } = await sql<{ seconds: number }>`
    select extract(epoch from run_at - updated_at)::double precision as seconds from job where id = ${jobId}`.execute(
    gateway.db,
  );
  assert.equal(rows[0]?.seconds, 120);
  assert.equal(waiting.state, 'queued');
  assert.equal((await gateway.call(`/tts/jobs/${jobId}/audio`)).json.error.code, 'JOB_NOT_READY');
});

test('a wait that would be too long fails the job instead', async (t) => {
  const { upstream, gateway, account } = await start(t);
  upstream.mode = tooManyRequests('3600');
  const { jobId } = (await later(gateway, account)).json;
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.deepEqual([job.status, job.error.code], ['failed', 'TTS_UNAVAILABLE']);
  assert.equal(await gateway.balance(account), FUNDS);
});

test('a job whose workers died at every attempt is not tried for ever', async (t) => {
  const { upstream, gateway, account } = await start(t, {}, { worker: false });
  const { jobId } = (await later(gateway, account)).json;
  await hurry(gateway, jobId, 5);
  gateway.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.deepEqual([job.status, job.error.code], ['failed', 'INTERNAL_ERROR']);
  assert.equal(upstream.requests.length, 0);
  assert.equal(await gateway.balance(account), FUNDS);
  assert.deepEqual(await audit(gateway.db), []);
});
