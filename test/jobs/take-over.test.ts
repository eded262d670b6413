import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Claim, claimJob } from '../../src/jobs/claim.ts';
import { completeJob, failJob, requeueJob } from '../../src/jobs/end.ts';
import { beat } from '../../src/jobs/heartbeat.ts';
import { requeueLostJobs, takeOverJobs } from '../../src/jobs/take-over.ts';
import { audit } from '../../src/ledger/audit.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { runTurn } from '../support/reconcile.ts';
import { Drip, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';

const PRICE = 198n;
const FUNDS = 5_000_000n;
const RESULT = { mimeType: 'audio/mpeg', sizeBytes: 1 } as const;
const RETENTION = 3600;

/** Replicas on one database; none runs jobs before it is told to. */
async function start(t: Test, replicas = 1, env: Record<string, string> = {}) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const first = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env });
  const gateways = [first];
  for (let index = 1; index < replicas; index++) {
    const { databaseUrl } = first;
    const shared = { SPEECH_BASE_URL: upstream.url, AUDIO_STORE: first.config.jobs.audioStore, ...env };
    gateways.push(await startGateway(t, shared, { databaseUrl }));
  }
  return { upstream, gateway: first, gateways, account: await first.fund(500) };
}

const row = (gateway: Gateway, id: string) =>
  gateway.db.selectFrom('job').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

/** A worker that claimed the job and was not heard of for these seconds. */
async function claimedByWorker(gateway: Gateway, jobId: string, silentSeconds: number): Promise<Claim> {
  const worker = randomUUID();
  await beat(gateway.db, worker, `pool-${worker}`);
  const claim = await claimJob(gateway.db, jobId, worker);
  await sql`update worker set heartbeat_at = now() - make_interval(secs => ${silentSeconds}) where id = ${worker}`.execute(
    gateway.db,
  );
  assert.ok(claim);
  return claim;
}

test('a job is claimed once, and only when it is due', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account)).json;
  const claims = await Promise.all(Array.from({ length: 10 }, () => claimJob(gateway.db, jobId, randomUUID())));
  const [claim, ...others] = claims.filter((found) => found !== undefined);
  assert.deepEqual(others, []);
  assert.equal(claim?.attempt, 1);
  assert.equal(claim?.fence, 2);
  await requeueJob(gateway.db, claim as Claim, { delayMs: 60_000 });
  assert.equal(await claimJob(gateway.db, jobId, randomUUID()), undefined);
  assert.deepEqual(await audit(gateway.db), []);
});

test('the jobs of a worker that was silent for 10 s are taken over, once, and by whoever is there', async (t) => {
  const { upstream, gateway, gateways, account } = await start(t, 2);
  const { jobId } = (await later(gateway, account)).json;
  const alive = (await later(gateway, account)).json;
  await claimedByWorker(gateway, jobId, 11);
  await claimedByWorker(gateway, alive.jobId, 8);
  const counts = await Promise.all(gateways.map(({ db }) => takeOverJobs(db)));
  assert.deepEqual(counts.sort(), [0, 1]);
  assert.equal((await row(gateway, jobId)).state, 'queued');
  assert.equal((await row(gateway, alive.jobId)).state, 'processing');
  assert.equal(await gateway.balance(account), FUNDS - 2n * PRICE, 'no hold is lost');
  assert.deepEqual(await audit(gateway.db), []);
  gateways[1]?.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(job.status, 'completed');
  assert.equal(upstream.requests.length, 1);
  assert.deepEqual(await audit(gateway.db), []);
});

test('an entry that a worker had taken from the queue when it died, before it claimed the job, is unlocked', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account)).json;
  const [dead, alive] = [randomUUID(), randomUUID()];
  await beat(gateway.db, dead, 'pool-dead');
  await beat(gateway.db, alive, 'pool-alive');
  const other = (await later(gateway, account)).json;
  const lock = (id: string, pool: string) =>
    sql`update graphile_worker._private_jobs set locked_at = now(), locked_by = ${pool} where key = ${id}`.execute(
      gateway.db,
    );
  await lock(jobId, 'pool-dead');
  await lock(other.jobId, 'pool-alive');
  await sql`update worker set heartbeat_at = now() - interval '11 seconds' where id = ${dead}`.execute(gateway.db);
  assert.equal(await takeOverJobs(gateway.db), 0);
  const { rows } = await sql`select key from graphile_worker._private_jobs where is_available`.execute(gateway.db);
  assert.deepEqual(rows, [{ key: jobId }]);
});

test('a job that is taken over has one entry in the queue, and leaves none behind', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account)).json;
  const worker = randomUUID();
  await beat(gateway.db, worker, 'pool-dead');
  await sql`update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-dead'`.execute(gateway.db);
  await claimJob(gateway.db, jobId, worker);
  await sql`update worker set heartbeat_at = now() - interval '11 seconds'`.execute(gateway.db);
  assert.equal(await takeOverJobs(gateway.db), 1);
  const { rows } = await sql`select key, is_available from graphile_worker._private_jobs`.execute(gateway.db);
  assert.deepEqual(rows, [{ key: jobId, is_available: true }]);
});

test('a worker that has signed off, or never registered, is dead at once', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account)).json;
  await claimJob(gateway.db, jobId, randomUUID());
  assert.equal(await takeOverJobs(gateway.db), 1);
});

test('a job that its live worker does not name is taken over, and so is its entry; what it names, or took since, is not', async (t) => {
  const { gateway, account } = await start(t);
  const make = async () => (await later(gateway, account)).json.jobId as string;
  const [lost, named, young] = [await make(), await make(), await make()];
  const worker = randomUUID();
  const claims = new Map<string, Claim | undefined>();
  const claim = async (id: string) => claims.set(id, await claimJob(gateway.db, id, worker));
  const first = await beat(gateway.db, worker, 'pool');
  await claim(lost);
  await claim(named);
  const states = async () => [(await row(gateway, lost)).state, (await row(gateway, named)).state];
  await beat(gateway.db, worker, 'pool', { jobIds: [named], entryIds: [], since: first });
  assert.equal(await takeOverJobs(gateway.db), 0, 'the answer may be on its way');
  const second = await beat(gateway.db, worker, 'pool', { jobIds: [lost, named], entryIds: [], since: first });
  await claim(young);
  await beat(gateway.db, worker, 'pool', { jobIds: [named], entryIds: [], since: second });
  assert.equal(await takeOverJobs(gateway.db), 1);
  assert.deepEqual(await states(), ['queued', 'processing']);
  assert.equal((await row(gateway, young)).state, 'processing');
  assert.equal((await row(gateway, lost)).attempts, 0, 'nobody has begun that attempt');
  assert.equal(await completeJob(gateway.db, claims.get(lost) as Claim, RESULT, RETENTION), false);
  const again = await claimJob(gateway.db, lost, worker);
  assert.deepEqual([again?.attempt, again?.fence], [1, 3]);
  assert.deepEqual(await audit(gateway.db), []);
});

test('an entry that a live worker locked, and does not run, is unlocked once no answer can be on its way', async (t) => {
  const { gateway, account } = await start(t);
  const ids = [];
  for (let count = 0; count < 3; count++) ids.push((await later(gateway, account)).json.jobId as string);
  const [lost, other, young] = ids as [string, string, string];
  const lock = (id: string, pool: string, seconds: number) =>
    sql`update graphile_worker._private_jobs
        set locked_at = now() - make_interval(secs => ${seconds}), locked_by = ${pool} where key = ${id}`.execute(
      gateway.db,
    );
  const [losing, running] = [randomUUID(), randomUUID()];
  await lock(lost, 'pool-losing', 11);
  await lock(young, 'pool-losing-young', 9);
  await lock(other, 'pool-running', 11);
  const { rows } = await sql<{ id: string }>`
    select id::text from graphile_worker._private_jobs where key = ${other}`.execute(gateway.db);
  const name = async (id: string, pool: string, entryIds: string[]) => {
    const since = await beat(gateway.db, id, pool);
    await beat(gateway.db, id, pool, { jobIds: [], entryIds, since });
  };
  await name(losing, 'pool-losing', []);
  await name(randomUUID(), 'pool-losing-young', []);
  await name(running, 'pool-running', [rows[0]?.id as string]);
  await requeueLostJobs(gateway.db);
  const free = await sql`select key from graphile_worker._private_jobs where is_available`.execute(gateway.db);
  assert.deepEqual(free.rows, [{ key: lost }]);
});

test('an attempt that hangs for an hour is taken over although its worker names it, and counts; operators see its age', async (t) => {
  const { gateway, account } = await start(t);
  const { jobId } = (await later(gateway, account)).json;
  const claim = await claimedByWorker(gateway, jobId, 0);
  const { worker_id } = await row(gateway, jobId);
  const since = await beat(gateway.db, worker_id as string, 'pool');
  await beat(gateway.db, worker_id as string, 'pool', { jobIds: [jobId], entryIds: [], since });
  const age = (seconds: number) =>
    sql`update job set updated_at = now() - make_interval(secs => ${seconds}) where id = ${jobId}`.execute(gateway.db);
  await age(3590);
  assert.equal(await takeOverJobs(gateway.db), 0);
  const metrics = (await gateway.app.admin.inject('/metrics')).body;
  const seconds = Number(/^speechgate_oldest_processing_job_seconds (\S+)$/m.exec(metrics)?.[1]);
  assert.ok(seconds >= 3590 && seconds < 3600 + 60, `${seconds} s`);
  await age(3601);
  assert.equal(await takeOverJobs(gateway.db), 1);
  assert.equal((await row(gateway, jobId)).attempts, 1);
  assert.equal(await completeJob(gateway.db, claim, RESULT, RETENTION), false);
  assert.deepEqual(await audit(gateway.db), []);
});

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
    .set({ run_at: sql<Date>`now() + interval '1 hour'` })
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
