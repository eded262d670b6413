import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { LEASE_SECONDS } from '../../src/db/lease.ts';
import { type Claim, claimJob, jobLeases } from '../../src/jobs/claim-job.ts';
import { completeJob, failJob, requeueJob } from '../../src/jobs/end-job.ts';
import { requeueLostJobs, takeOverJobs } from '../../src/jobs/take-over.ts';
import { audit } from '../../src/ledger/audit.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { runTurn } from '../support/reconcile.ts';
import { brokenRules, rolledBack } from '../support/rolled-back.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { ControlledStream, mp3, openAiError, testUpstream } from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';
import { claimed, endLease, FUNDS, PRICE, RESULT, RETENTION, row, start } from './claiming.ts';

/** Without a running worker. */
const { gateway: idle } = await start(t);

/** Of a lease: in its second third it is renewed. */
const SECOND_THIRD_MS = (LEASE_SECONDS * 1000) / 3;

test('a job is claimed once, and only when it is due', async (t) => {
  const [gateway, account] = [idle, await idle.fund(500)];
  const { jobId } = (await later(gateway, account)).json;
  const claims = await Promise.all(Array.from({ length: 10 }, () => claimJob(gateway.db, jobId)));
  const [claim, ...others] = claims.filter((found) => found !== undefined);
  t.strictSame(others, []);
  t.strictSame([claim?.attempt, claim?.fence], [1, 2]);
  await requeueJob(gateway.db, claim as Claim, { delayMs: 60_000 });
  t.equal(await claimJob(gateway.db, jobId), undefined);
  t.strictSame(await audit(gateway.db), []);
});

test('a job with an expired lease is taken over once, by any worker', async (t) => {
  const { upstream, gateway, gateways, account } = await start(t, 2);
  const { jobId } = (await later(gateway, account)).json;
  const alive = (await later(gateway, account)).json;
  await claimed(gateway, jobId);
  await claimed(gateway, alive.jobId);
  await endLease(gateway, jobId);
  const counts = await Promise.all(gateways.map(({ db }) => takeOverJobs(db)));
  t.strictSame(counts.sort(), [0, 1]);
  t.equal((await row(gateway, jobId)).state, 'queued');
  t.equal((await row(gateway, alive.jobId)).state, 'processing');
  t.equal(await gateway.balance(account), FUNDS - 2n * PRICE, 'no hold is lost');
  t.strictSame(await audit(gateway.db), []);
  gateways[1]?.app.worker?.start();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.equal(job.status, 'completed');
  t.equal(upstream.requests.length, 1);
  t.strictSame(await audit(gateway.db), []);
});

test('a worker renews all leases together and learns which it has lost', async (t) => {
  const [gateway, account] = [idle, await idle.fund(500)];
  const make = async () => claimed(gateway, (await later(gateway, account)).json.jobId);
  const [live, taken, ended] = [await make(), await make(), await make()];
  await endLease(gateway, taken.jobId);
  await takeOverJobs(gateway.db);
  const owner = await claimed(gateway, taken.jobId);
  await completeJob(gateway.db, ended, RESULT, RETENTION);
  await sql`update job set lease_until = now() + interval '1 second' where state = 'processing'`.execute(gateway.db);
  const leases = jobLeases(gateway.db);
  const lost: Claim[] = [];
  const ends = [live, taken, ended, owner].map((claim) =>
    leases.keep(claim, performance.now() - SECOND_THIRD_MS, () => lost.push(claim)),
  );
  const leaseOf = async ({ jobId }: Claim) => Number((await row(gateway, jobId)).lease_until);
  await until(() => lost.length === 2);
  t.strictSame(lost, [taken, ended]);
  for (const claim of [live, owner]) t.ok((await leaseOf(claim)) > Date.now() + SECOND_THIRD_MS);
  for (const end of ends) end();
  t.strictSame(await audit(gateway.db), []);
});

test('a stale worker can neither complete, fail nor requeue a job taken over', async (t) => {
  const [gateway, account] = [idle, await idle.fund(500)];
  const { jobId } = (await later(gateway, account)).json;
  const paused = await claimed(gateway, jobId);
  await endLease(gateway, jobId);
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
  const owner = await claimed(gateway, jobId);
  t.ok(owner.fence > paused.fence);
  t.equal(owner.attempt, 2, 'the attempt that ended with its worker counts');
  await tries();
  t.equal((await row(gateway, jobId)).state, 'processing');
  t.equal(await completeJob(gateway.db, owner, RESULT, RETENTION), true);
  await tries();
  t.equal((await row(gateway, jobId)).state, 'completed');
  t.equal(await gateway.balance(account), FUNDS - PRICE);
});

test('ending a job again after a lost response has no further effect', async (t) => {
  const [gateway, account] = [idle, await idle.fund(500)];
  const make = async () => claimed(gateway, (await later(gateway, account)).json.jobId);
  const [completed, failed, requeued] = [await make(), await make(), await make()];
  for (let times = 0; times < 2; times++) {
    t.equal(await completeJob(gateway.db, completed, RESULT, RETENTION), true);
    t.equal(await failJob(gateway.db, failed, { code: 'X', message: 'x' }, RETENTION), true);
    t.equal(await requeueJob(gateway.db, requeued, { delayMs: 60_000, uncounted: true }), true);
  }
  t.equal(await failJob(gateway.db, completed, { code: 'X', message: 'x' }, RETENTION), false);
  t.equal(await completeJob(gateway.db, failed, RESULT, RETENTION), false);
  t.equal((await row(gateway, requeued.jobId)).attempts, 0);
  t.equal(await gateway.balance(account), FUNDS - 2n * PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('audio that a worker stored for a lost job is deleted', async (t) => {
  const { upstream, gateway, gateways, account } = await start(t, 2);
  const [slow, quick] = gateways as [Gateway, Gateway];
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  slow.app.worker?.start();
  const { jobId } = (await later(gateway, account)).json;
  await drip.opened;
  // As when it was frozen until its lease had ended.
  await endLease(gateway, jobId);
  upstream.mode = mp3(200);
  await takeOverJobs(gateway.db);
  quick.app.worker?.start();
  t.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  const objects = async () =>
    (await readdir(join(gateway.config.dataDir, 'audio'), { recursive: true })).filter((name) => name.includes('/'));
  t.equal((await objects()).length, 1);
  await drip.write(silentMp3(1000));
  drip.end();
  await slow.app.worker?.stop();
  t.equal((await objects()).length, 1);
  const audio = await gateway.call(`/tts/jobs/${jobId}/audio`);
  t.strictSame(audio.bytes, silentMp3(200), 'of the worker that completed the job');
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('two replicas on one database speak each of 12 jobs once', async (t) => {
  const { upstream, gateway, gateways, account } = await start(t, 2, { JOB_CONCURRENCY: '4' });
  for (const { app } of gateways) app.worker?.start();
  const jobs = await Promise.all(
    Array.from({ length: 12 }, (_, index) => later(gateways[index % 2] as Gateway, account, { text: `text ${index}` })),
  );
  for (const { json } of jobs) t.equal((await untilJob(gateway, json.jobId, 'completed')).json.status, 'completed');
  const spoken = upstream.requests.map(({ body }) => body?.input);
  t.strictSame(spoken.sort(), Array.from({ length: 12 }, (_, index) => `text ${index}`).sort());
  t.strictSame(await audit(gateway.db), []);
});

const updateEntry = ({ db }: Gateway, jobId: string, set: string) =>
  sql`update graphile_worker._private_jobs set ${sql.raw(set)} where key = ${jobId}`.execute(db);

/** Of the jobs that the queue would give to a worker now. */
async function runnable({ db }: Gateway): Promise<string[]> {
  const { rows } = await sql<{ key: string }>`
    select key from graphile_worker._private_jobs where is_available and run_at <= now()`.execute(db);
  return rows.map(({ key }) => key).sort();
}

test('the safety net requeues only due jobs that the queue has lost', async (t) => {
  const { gateway, account } = await start(t);
  const make = async () => (await later(gateway, account)).json.jobId as string;
  const [lost, exhausted, postponed, waiting] = [await make(), await make(), await make(), await make()];
  // Its worker has died with it, before it claimed the job; the other one has just taken its entry.
  const [deadWorker, liveWorker] = [await make(), await make()];
  const [young, ahead] = [await make(), await make()];
  const all = [lost, exhausted, postponed, waiting, deadWorker, liveWorker];
  const setRunAt = (ids: string[], at: string) =>
    gateway.db
      .updateTable('job')
      .set({ run_at: sql.raw<Date>(at) })
      .where('id', 'in', ids)
      .execute();
  await setRunAt(all, "now() - interval '11 seconds'");
  await setRunAt([ahead], "now() + interval '10 minutes'");
  for (const id of [lost, young, ahead]) await sql`select graphile_worker.remove_job(${id})`.execute(gateway.db);
  await updateEntry(gateway, exhausted, 'attempts = max_attempts');
  await updateEntry(gateway, postponed, "run_at = now() + interval '1 hour'");
  await updateEntry(gateway, deadWorker, "locked_at = now() - interval '1 minute', locked_by = 'dead'");
  await updateEntry(gateway, liveWorker, "locked_at = now(), locked_by = 'alive'");

  t.equal(await requeueLostJobs(gateway.db), 4);
  t.equal(await requeueLostJobs(gateway.db), 0);
  t.strictSame(await runnable(gateway), [lost, exhausted, postponed, waiting, deadWorker].sort());
  await updateEntry(gateway, liveWorker, 'locked_at = null, locked_by = null');
  gateway.app.worker?.start();
  for (const jobId of all) await untilJob(gateway, jobId, 'completed');
  t.strictSame(await audit(gateway.db), []);
});

test('a queue entry for a missing or ended job does nothing', async (t) => {
  const { upstream, gateway, account } = await start(t);
  gateway.app.worker?.start();
  const { jobId } = (await later(gateway, account)).json;
  await untilJob(gateway, jobId, 'completed');
  for (const id of [jobId, randomUUID()]) {
    await sql`select graphile_worker.add_job('speak', json_build_object('jobId', ${id}::text))`.execute(gateway.db);
  }
  const entries = async () => (await sql`select from graphile_worker._private_jobs`.execute(gateway.db)).rows.length;
  while ((await entries()) > 0);
  t.equal(upstream.requests.length, 1);
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
});

async function startSingle(t: Test) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, JOB_CONCURRENCY: '1' });
  return { upstream, gateway };
}

async function accept(gateway: Gateway, account: string, texts: readonly string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const text of texts) ids.push((await later(gateway, account, { text })).json.jobId);
  return ids;
}

const many = (name: string, count: number) => Array.from({ length: count }, (_, index) => `${name} ${index}`);

const turns = async (gateway: Gateway) => {
  const { rows } = await sql<{ turn: number; priority: number; text: string }>`
    select job.turn, entry.priority, job.text from job join graphile_worker._private_jobs entry on entry.key = job.id::text
    order by job.created_at`.execute(gateway.db);
  return rows;
};

test('accounts take turns: a job of a new account runs before a long backlog', async (t) => {
  const { upstream, gateway } = await startSingle(t);
  const spoken = () => upstream.requests.map(({ body }) => body?.input);
  const crowd = await accept(gateway, await gateway.fund(5000), many('crowd', 10));
  await accept(gateway, await gateway.fund(500), ['single']);
  await accept(gateway, await gateway.fund(500), many('few', 3));
  gateway.app.worker?.start();
  for (const id of crowd) await untilJob(gateway, id, 'completed');
  t.strictSame(spoken().slice(0, 7), ['crowd 0', 'single', 'few 0', 'crowd 1', 'few 1', 'crowd 2', 'few 2']);
  t.strictSame(spoken().slice(7), many('crowd', 10).slice(3));
  t.strictSame(await audit(gateway.db), []);
});

test('the turn of a job counts the live jobs of its account', async (t) => {
  const { gateway } = await startSingle(t);
  const account = await gateway.fund(500);
  const [first] = await accept(gateway, account, ['a']);
  gateway.app.worker?.start();
  await untilJob(gateway, first as string, 'completed');
  await gateway.app.worker?.stop();
  await Promise.all(many('b', 10).map((text) => later(gateway, account, { text })));
  const found = await turns(gateway);
  t.strictSame(found.map(({ turn }) => turn).sort(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  t.ok(found.every(({ turn, priority }) => turn === priority));
});

test('a retried or lost job keeps its turn', async (t) => {
  const { upstream, gateway } = await startSingle(t);
  const [, second] = await accept(gateway, await gateway.fund(500), ['first', 'second']);
  upstream.mode = (request, response) =>
    (request.body?.input === 'first' ? mp3() : openAiError(500))(request, response);
  gateway.app.worker?.start();
  await upstream.waitForRequests(2);
  await until(async () => (await turns(gateway)).some(({ text, priority }) => text === 'second' && priority === 1));
  await gateway.app.worker?.stop();
  await sql`update job set state = 'queued', lease_until = null, run_at = now() - interval '11 seconds'
            where id = ${second as string}`.execute(gateway.db);
  await sql`delete from graphile_worker._private_jobs`.execute(gateway.db);
  t.equal((await runTurn(gateway, 'lost_jobs')).count, 1);
  t.strictSame(await turns(gateway), [{ text: 'second', turn: 1, priority: 1 }]);
});

test('a job that has waited two minutes per earlier job goes by its age', async (t) => {
  const { upstream, gateway } = await startSingle(t);
  await accept(gateway, await gateway.fund(500), many('crowd', 4));
  await sql`update job set run_at = now() - interval '241 seconds'`.execute(gateway.db);
  await runTurn(gateway, 'lost_jobs');
  t.strictSame(
    (await turns(gateway)).map(({ turn, priority }) => [turn, priority]),
    [
      [0, 0],
      [0, 0],
      [0, 0],
      [3, 3],
    ],
  );
  const ids = await accept(gateway, await gateway.fund(500), ['later']);
  gateway.app.worker?.start();
  await untilJob(gateway, ids[0] as string, 'completed');
  const spoken = upstream.requests.map(({ body }) => body?.input);
  t.strictSame(spoken.slice(0, 3).sort(), ['crowd 0', 'crowd 1', 'crowd 2']);
  t.equal(spoken[3], 'later');
  t.strictSame(await audit(gateway.db), []);
});

const HOLD = 'each pending hold has an unexpired lease or an unfinished job';
const STATE = "the hold of each job has the state that fits the job's state, and the same fence number";
const TEXT = 'each unfinished job has its text, and no finished job has a text';

test('each audit rule for jobs and holds detects its own damage', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const make = async () => (await later(gateway, account)).json.jobId as string;
  const ended = async (as: 'completed' | 'failed') => {
    const claim = await claimJob(gateway.db, await make());
    assert.ok(claim);
    if (as === 'completed') await completeJob(gateway.db, claim, { mimeType: 'audio/mpeg', sizeBytes: 1 }, 60);
    else await failJob(gateway.db, claim, { code: 'TTS_UNAVAILABLE', message: 'x' }, 60);
    return claim.jobId;
  };
  const [queued, completed, failed] = [await make(), await ended('completed'), await ended('failed')];
  // Only a constraint keeps the text; the audit must see it without.
  await sql`
    do $$ declare name text; begin
      for name in select conname from pg_constraint where conrelid = 'job'::regclass and contype = 'c' loop
        execute format('alter table job drop constraint %I', name);
      end loop;
    end $$`.execute(gateway.db);
  t.strictSame(await audit(gateway.db), []);

  const hold = (jobId: string) => sql`(select hold_id from job where id = ${jobId})`;
  const damages: [name: string, damage: ReturnType<typeof sql>, rules: string[]][] = [
    ['a queued job vanishes', sql`delete from job where id = ${queued}`, [HOLD]],
    [
      'a job fails and keeps its hold',
      sql`update job set state = 'failed', text = null where id = ${queued}`,
      [HOLD, STATE],
    ],
    [
      "a queued job's hold is posted",
      sql`update transfer set state = 'posted', ended_at = now() where id = ${hold(queued)}`,
      [STATE],
    ],
    ['a completed job was not captured', sql`update job set state = 'failed' where id = ${completed}`, [STATE]],
    ['a failed job was charged', sql`update job set state = 'completed' where id = ${failed}`, [STATE]],
    [
      "a job's hold has a lease",
      sql`update transfer set lease_until = now() + interval '1 hour' where id = ${hold(queued)}`,
      [STATE],
    ],
    ['fences differ', sql`update job set fence = fence + 1 where id = ${queued}`, [STATE]],
    ["another account's hold", sql`update job set account_id = gen_random_uuid() where id = ${queued}`, [STATE]],
    ['a text outlives its job', sql`update job set text = 'still here' where id = ${completed}`, [TEXT]],
    ['a failed job keeps its text', sql`update job set text = 'still here' where id = ${failed}`, [TEXT]],
    ['a live job lost its text', sql`update job set text = null where id = ${queued}`, [TEXT]],
  ];
  for (const [name, damage, rules] of damages) {
    const found = await rolledBack(gateway.db, async (trx) => {
      await unguarded(trx, () => damage.execute(trx));
      return brokenRules(trx);
    });
    t.strictSame(
      found.filter((rule) => [HOLD, STATE, TEXT].includes(rule)),
      rules,
      name,
    );
  }
});
