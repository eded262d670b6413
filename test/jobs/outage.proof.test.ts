import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { runTurn } from '../support/reconcile.ts';
import { Drip, mp3, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';

const FUNDS = 5_000_000n;
const PRICE = 198n;

async function start(t: Test, options: { worker: boolean }) {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, { databaseUrl: proxy.url, ...options });
  return { proxy, upstream, gateway, account: await gateway.fund(500) };
}

const job = (gateway: Gateway, id: string) =>
  gateway.db.selectFrom('job').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

test('database lost while a job is spoken: its end is written once it is back, by the same worker', async (t) => {
  const { proxy, upstream, gateway, account } = await start(t, { worker: true });
  const drip = new Drip();
  upstream.mode = drip.mode;
  const { jobId } = (await later(gateway, account)).json;
  await drip.opened;
  proxy.cut();
  await drip.write(silentMp3(300));
  drip.end();
  assert.equal(await upstream.requests[0]?.closed, 'complete');
  assert.equal((await gateway.call(`/tts/jobs/${jobId}`)).status, 503);
  assert.equal((await gateway.call(`/tts/jobs/${jobId}/audio`)).status, 503);
  assert.equal((await later(gateway, account)).status, 503);
  proxy.restore();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(job.status, 'completed');
  assert.equal(upstream.requests.length, 1, 'spoken once');
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  assert.deepEqual(await audit(gateway.db), []);

  upstream.mode = mp3();
  const next = (await later(gateway, account)).json;
  assert.equal((await untilJob(gateway, next.jobId, 'completed', 'failed')).json.status, 'completed', 'it goes on');
});

test('a worker that starts while the database is away begins when it is there', async (t) => {
  const { proxy, gateway, account } = await start(t, { worker: false });
  const { jobId } = (await later(gateway, account)).json;
  proxy.cut();
  gateway.app.worker?.start();
  await until(async () => (await gateway.call(`/tts/jobs/${jobId}`)).status === 503);
  proxy.restore();
  assert.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.deepEqual(await audit(gateway.db), []);
});

test('missing tables: 503 with the command, nothing stays debited, and the worker waits for them', async (t) => {
  const { gateway, account } = await start(t, { worker: false });
  await sql`drop schema graphile_worker cascade`.execute(gateway.db);
  const refused = await later(gateway, account);
  assert.deepEqual([refused.status, refused.json.error.code], [503, 'CONFIG_ERROR']);
  assert.equal(refused.json.error.details.command, 'npm run migrate');
  assert.equal(await gateway.balance(account), FUNDS);

  await sql`drop schema public cascade`.execute(gateway.db);
  await sql`create schema public`.execute(gateway.db);
  gateway.app.worker?.start();
  assert.equal((await gateway.call(`/tts/jobs/${randomUUID()}`)).json.error.details.command, 'npm run migrate');
  await migrate(gateway.databaseUrl);
  const { jobId } = (await later(gateway, await gateway.fund(500))).json;
  assert.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.deepEqual(await audit(gateway.db), []);
});

test('an entry whose end can not be written breaks the queue, and the worker opens another one', async (t) => {
  const { upstream, gateway, account } = await start(t, { worker: true });
  const { jobId } = (await later(gateway, account)).json;
  await untilJob(gateway, jobId, 'completed');
  const pool = async () => (await gateway.db.selectFrom('worker').select('queue_pool').executeTakeFirst())?.queue_pool;
  await until(async () => (await pool()) !== undefined);
  const first = await pool();
  await sql`
    create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$`.execute(
    gateway.db,
  );
  await sql`create trigger refuse before delete on graphile_worker._private_jobs execute function refuse()`.execute(
    gateway.db,
  );
  const second = (await later(gateway, account)).json;
  assert.equal((await untilJob(gateway, second.jobId, 'completed', 'failed')).json.status, 'completed');
  await until(async () => (await pool()) !== first);
  await sql`drop function refuse() cascade`.execute(gateway.db);
  const third = (await later(gateway, account)).json;
  assert.equal((await untilJob(gateway, third.jobId, 'completed', 'failed')).json.status, 'completed');
  assert.equal(upstream.requests.length, 3, 'each was spoken once');
  assert.equal(await gateway.balance(account), FUNDS - 3n * PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('the answer of a claim is lost with its connection: the job is claimed anew, charged once, and no attempt is used up', async (t) => {
  const { proxy, upstream, gateway, account } = await start(t, { worker: false });
  const { jobId } = (await later(gateway, account, { text: 'Hello lost claim' })).json;
  const lost = proxy.loseAnswer('Hello lost claim');
  gateway.app.worker?.start();
  await lost;
  const { state, fence } = await job(gateway, jobId);
  assert.deepEqual([state, fence], ['processing', 2], 'the database has seen the claim');
  await until(async () => (await job(gateway, jobId)).state === 'completed');
  const { attempts, fence: owner } = await job(gateway, jobId);
  assert.deepEqual([attempts, owner], [1, 3]);
  assert.equal(upstream.requests.length, 1);
  assert.equal(await gateway.balance(account), FUNDS - 16n * 18n);
  assert.deepEqual(await audit(gateway.db), []);
});

test("the answer of the queue's own get_job is lost with its connection: the entry is unlocked, and the job is spoken once", async (t) => {
  const { proxy, upstream, gateway, account } = await start(t, { worker: false });
  const { jobId } = (await later(gateway, account)).json;
  const lost = proxy.loseAnswer(`{"jobId" : "${jobId}"}`);
  gateway.app.worker?.start();
  await lost;
  const entry = async () =>
    (
      await sql<{ locked_by: string | null }>`
        select locked_by from graphile_worker._private_jobs where key = ${jobId}`.execute(gateway.db)
    ).rows[0];
  const pool = (await entry())?.locked_by;
  assert.ok(pool, 'the database has seen the call');
  // As if it had been locked for longer than any answer takes.
  await sql`update graphile_worker._private_jobs set locked_at = locked_at - interval '11 seconds'`.execute(gateway.db);
  await until(async () => {
    await runTurn(gateway, 'lost_jobs');
    return (await job(gateway, jobId)).state === 'completed';
  });
  const workers = await gateway.db.selectFrom('worker').select('queue_pool').execute();
  assert.deepEqual(workers, [{ queue_pool: pool }], 'the worker lives on');
  assert.equal(upstream.requests.length, 1);
  assert.equal(await gateway.balance(account), FUNDS - PRICE);
  await until(async () => (await entry()) === undefined);
  assert.deepEqual(await audit(gateway.db), []);
});
