import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { runTurn } from '../support/reconcile.ts';
import { mp3, openAiError, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

async function start(t: Test) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
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

test('accounts take turns: a job that comes after 40 of another account is spoken next, and so are those of a third', async (t) => {
  const { upstream, gateway } = await start(t);
  const spoken = () => upstream.requests.map(({ body }) => body?.input);
  const crowd = await accept(gateway, await gateway.fund(5000), many('crowd', 40));
  await accept(gateway, await gateway.fund(500), ['single']);
  await accept(gateway, await gateway.fund(500), many('few', 3));
  gateway.app.worker?.start();
  for (const id of crowd) await untilJob(gateway, id, 'completed');
  assert.deepEqual(spoken().slice(0, 7), ['crowd 0', 'single', 'few 0', 'crowd 1', 'few 1', 'crowd 2', 'few 2']);
  assert.deepEqual(spoken().slice(7), many('crowd', 40).slice(3));
  assert.deepEqual(await audit(gateway.db), []);
});

test('a job of an account counts those that live, also while they are accepted at the same moment; ended ones do not', async (t) => {
  const { gateway } = await start(t);
  const account = await gateway.fund(500);
  const [first] = await accept(gateway, account, ['a']);
  gateway.app.worker?.start();
  await untilJob(gateway, first as string, 'completed');
  await gateway.app.worker?.stop();
  await Promise.all(many('b', 10).map((text) => later(gateway, account, { text })));
  const found = await turns(gateway);
  assert.deepEqual(found.map(({ turn }) => turn).sort(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.ok(found.every(({ turn, priority }) => turn === priority));
});

test('a job that is tried again, or was lost by the queue, keeps its turn', async (t) => {
  const { upstream, gateway } = await start(t);
  const [, second] = await accept(gateway, await gateway.fund(500), ['first', 'second']);
  upstream.mode = (request, response) =>
    (request.body?.input === 'first' ? mp3() : openAiError(500))(request, response);
  gateway.app.worker?.start();
  await upstream.waitForRequests(2);
  await until(async () => (await turns(gateway)).some(({ text, priority }) => text === 'second' && priority === 1));
  await gateway.app.worker?.stop();
  await sql`update job set state = 'queued', worker_id = null, run_at = now() - interval '11 seconds'
            where id = ${second as string}`.execute(gateway.db);
  await sql`delete from graphile_worker._private_jobs`.execute(gateway.db);
  assert.equal((await runTurn(gateway, 'lost_jobs')).count, 1);
  assert.deepEqual(await turns(gateway), [{ text: 'second', turn: 1, priority: 1 }]);
});

test('a job that has waited two minutes for each one before it goes by its age, before those that come later', async (t) => {
  const { upstream, gateway } = await start(t);
  await accept(gateway, await gateway.fund(500), many('crowd', 4));
  await sql`update job set run_at = now() - interval '241 seconds'`.execute(gateway.db);
  await runTurn(gateway, 'lost_jobs');
  assert.deepEqual(
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
  assert.deepEqual(spoken.slice(0, 3).sort(), ['crowd 0', 'crowd 1', 'crowd 2']);
  assert.equal(spoken[3], 'later');
  assert.deepEqual(await audit(gateway.db), []);
});
