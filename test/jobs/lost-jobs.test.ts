import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { test } from 'tap';
import type { Claim } from '../../src/jobs/claim-job.ts';
import { completeJob, failJob, requeueJob } from '../../src/jobs/end-job.ts';
import { beat } from '../../src/jobs/heartbeat.ts';
import { requeueLostJobs, takeOverJobs } from '../../src/jobs/take-over.ts';
import { audit } from '../../src/ledger/audit.ts';
import type { Gateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { runTurn } from '../support/reconcile.ts';
import { Drip, silentMp3 } from '../support/stub-upstream.ts';
import { claimedByWorker, FUNDS, PRICE, RESULT, RETENTION, row, start } from './claiming.ts';

test('a paused worker whose job was taken over can neither complete nor fail nor requeue it', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account)).json;
  const paused = await claimedByWorker(gateway, jobId, 11);
  await takeOverJobs(gateway.db);
  const tries = async () => {
    assert.equal(await completeJob(gateway.db, paused, RESULT, RETENTION), false);
    assert.equal(await failJob(gateway.db, paused, { code: 'X', message: 'x' }, RETENTION), false);
    assert.equal(
      await requeueJob(gateway.db, paused, { delayMs: 0 }),
      (await row(gateway, jobId)).fence === paused.fence,
    );
    assert.deepEqual(await audit(gateway.db), []);
  };
  await tries();
  const owner = await claimedByWorker(gateway, jobId, 0);
  assert.ok(owner.fence > paused.fence);
  assert.equal(owner.attempt, 2, 'the attempt that ended with its worker counts');
  await tries();
  assert.equal((await row(gateway, jobId)).state, 'processing');
  assert.equal(await completeJob(gateway.db, owner, RESULT, RETENTION), true);
  await tries();
  assert.equal((await row(gateway, jobId)).state, 'completed');
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
});

test('what ends a job may be repeated after a lost answer, and has one effect', async (t) => {
  const { gateway, account } = await start(t);
  const claims: Claim[] = [];
  for (let index = 0; index < 3; index++) {
    const { jobId } = (await later(gateway, account)).json;
    claims.push(await claimedByWorker(gateway, jobId, 0));
  }
  const [completed, failed, requeued] = claims as [Claim, Claim, Claim];
  for (let times = 0; times < 2; times++) {
    assert.equal(await completeJob(gateway.db, completed, RESULT, RETENTION), true);
    assert.equal(await failJob(gateway.db, failed, { code: 'X', message: 'x' }, RETENTION), true);
    assert.equal(await requeueJob(gateway.db, requeued, { delayMs: 60_000, uncounted: true }), true);
  }
  assert.equal(await failJob(gateway.db, completed, { code: 'X', message: 'x' }, RETENTION), false);
  assert.equal(await completeJob(gateway.db, failed, RESULT, RETENTION), false);
  assert.equal((await row(gateway, requeued.jobId)).attempts, 0);
  assert.equal(await gateway.balance(account), FUNDS - 2n * PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('audio that a worker stored for a job that it had lost is deleted', async (t) => {
  const { upstream, gateway, gateways, account } = await start(t, 2);
  const [slow, quick] = gateways as [Gateway, Gateway];
  const drip = new Drip();
  upstream.mode = drip.mode;
  slow.app.worker?.start();
  const { jobId } = (await later(gateway, account)).json;
  await drip.opened;
  // The slow one is as good as dead: its row goes, as when its heartbeat stopped, and the other takes over.
  await gateway.db.updateTable('job').set({ worker_id: randomUUID() }).where('id', '=', jobId).execute();
  upstream.mode = (_request, response) => {
    response.writeHead(200, { 'content-type': 'audio/mpeg' });
    response.end(silentMp3(200));
  };
  await takeOverJobs(gateway.db);
  quick.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(job.status, 'completed');
  const objects = async () =>
    (await readdir(join(gateway.config.dataDir, 'audio'), { recursive: true })).filter((name) => name.includes('/'));
  assert.equal((await objects()).length, 1);
  await drip.write(silentMp3(1000));
  drip.end();
  await slow.app.worker?.stop();
  assert.equal((await objects()).length, 1);
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio`);
  assert.deepEqual(audio.bytes, silentMp3(200), 'of the worker that completed the job');
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('two replicas on one database: each of 40 jobs is spoken once', async (t) => {
  const { upstream, gateway, gateways, account } = await start(t, 2, { JOB_CONCURRENCY: '4' });
  for (const { app } of gateways) app.worker?.start();
  const jobs = await Promise.all(
    Array.from({ length: 40 }, (_, index) => later(gateways[index % 2] as Gateway, account, { text: `text ${index}` })),
  );
  for (const { json } of jobs)
    assert.equal((await untilJob(gateway, json.jobId, 'completed')).json.status, 'completed');
  const spoken = upstream.requests.map(({ body }) => body?.input);
  assert.deepEqual(spoken.sort(), Array.from({ length: 40 }, (_, index) => `text ${index}`).sort());
  const workers = await gateway.db.selectFrom('worker').selectAll().execute();
  assert.equal(workers.length, 2);
  assert.deepEqual(await audit(gateway.db), []);
});

test('the safety net enters a due job again that the queue has lost, and no other', async (t) => {
  const { gateway, account } = await start(t);
  const overdue = sql<Date>`now() - interval '11 seconds'`;
  const make = async () => (await later(gateway, account)).json.jobId as string;
  const [lost, exhausted, postponed, waiting, taken, young, ahead] = [
    await make(),
    await make(),
    await make(),
    await make(),
    await make(),
    await make(),
    await make(),
  ];
  const all = [lost, exhausted, postponed, waiting, taken];
  await gateway.db.updateTable('job').set({ run_at: overdue }).where('id', 'in', all).execute();
  const update = (jobId: string, set: string) =>
    sql`update graphile_worker._private_jobs set ${sql.raw(set)} where key = ${jobId}`.execute(gateway.db);
  await sql`select graphile_worker.remove_job(${lost})`.execute(gateway.db);
  await sql`select graphile_worker.remove_job(${young})`.execute(gateway.db);
  await sql`select graphile_worker.remove_job(${ahead})`.execute(gateway.db);
  await gateway.db
    .updateTable('job')
    .set({ run_at: sql<Date>`now() + interval '10 minutes'` })
    .where('id', '=', ahead)
    .execute();
  await update(exhausted, 'attempts = max_attempts');
  await update(postponed, "run_at = now() + interval '1 hour'");
  const worker = randomUUID();
  await beat(gateway.db, worker, 'pool-live');
  await update(taken, "locked_at = now() - interval '1 minute', locked_by = 'pool-live'");

  assert.equal(await requeueLostJobs(gateway.db), 3);
  assert.equal(await requeueLostJobs(gateway.db), 0);
  const entries = await sql<{ key: string; runnable: boolean }>`
    select key, is_available and run_at <= now() as runnable from graphile_worker._private_jobs`.execute(gateway.db);
  const runnable = entries.rows.filter((entry) => entry.runnable).map(({ key }) => key);
  assert.deepEqual(runnable.sort(), [lost, exhausted, postponed, waiting].sort());

  // The worker with that pool dies: its entry is unlocked, long before the queue's own 4 hours.
  await sql`update worker set heartbeat_at = now() - interval '11 seconds'`.execute(gateway.db);
  assert.equal((await runTurn(gateway, 'lost_jobs')).outcome, 'done');
  gateway.app.worker?.start();
  for (const jobId of all) await untilJob(gateway, jobId, 'completed');
  assert.deepEqual(await audit(gateway.db), []);
});

test('workers that were silent for an hour are forgotten', async (t) => {
  const { gateway } = await start(t);
  const [old, young] = [randomUUID(), randomUUID()];
  for (const id of [old, young]) await beat(gateway.db, id, undefined);
  await sql`update worker set heartbeat_at = now() - interval '61 minutes' where id = ${old}`.execute(gateway.db);
  await requeueLostJobs(gateway.db);
  assert.deepEqual(await gateway.db.selectFrom('worker').select('id').execute(), [{ id: young }]);
});

test('a queue entry without its job, or of a job that has ended, does nothing', async (t) => {
  const { upstream, gateway, account } = await start(t);
  gateway.app.worker?.start();
  const { jobId } = (await later(gateway, account)).json;
  await untilJob(gateway, jobId, 'completed');
  for (const id of [jobId, randomUUID()]) {
    await sql`select graphile_worker.add_job('speak', json_build_object('jobId', ${id}::text))`.execute(gateway.db);
  }
  const entries = async () => (await sql`select from graphile_worker._private_jobs`.execute(gateway.db)).rows.length;
  while ((await entries()) > 0);
  assert.equal(upstream.requests.length, 1);
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});
