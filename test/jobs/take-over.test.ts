import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { type Claim, claimJob } from '../../src/jobs/claim-job.ts';
import { completeJob, requeueJob } from '../../src/jobs/end-job.ts';
import { beat } from '../../src/jobs/heartbeat.ts';
import { requeueLostJobs, takeOverJobs } from '../../src/jobs/take-over.ts';
import { audit } from '../../src/ledger/audit.ts';
import { later, untilJob } from '../support/jobs.ts';
import { claimedByWorker, FUNDS, PRICE, RESULT, RETENTION, row, start } from './claiming.ts';

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
