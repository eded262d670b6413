import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, t, test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { runTurn } from '../support/reconcile.ts';
import { ControlledStream, mp3, silentMp3, testUpstream } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import { endLease } from './claiming.ts';

const FUNDS = 5_000_000n;
const PRICE = 198n;

// They wait for retries most of the time.
t.jobs = 4;

async function start(t: Test, options: { worker: boolean }) {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const upstream = await testUpstream(t);
  const gateway = await startGateway(
    t,
    { SPEECH_BASE_URL: upstream.url, LOG_LEVEL: 'warn' },
    { databaseUrl: proxy.url, ...options },
  );
  return { proxy, upstream, gateway, account: await gateway.fund(500) };
}

const job = (gateway: Gateway, id: string) =>
  gateway.db.selectFrom('job').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

test('a job spoken during a database outage is completed after it', async (t) => {
  const { proxy, upstream, gateway, account } = await start(t, { worker: true });
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const { jobId } = (await later(gateway, account)).json;
  await drip.opened;
  proxy.cut();
  await drip.write(silentMp3(300));
  drip.end();
  t.equal(await upstream.requests[0]?.closed, 'complete');
  t.equal((await gateway.call(`/tts/jobs/${jobId}`)).status, 503);
  t.equal((await gateway.call(`/tts/jobs/${jobId}/audio`)).status, 503);
  t.equal((await later(gateway, account)).status, 503);
  const said = () => gateway.log.filter(({ msg }) => msg.startsWith("the job worker can't read its queue")).length;
  await until(() => said() > 0);
  proxy.restore();
  const job = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  t.equal(job.status, 'completed');
  t.equal(upstream.requests.length, 1, 'spoken once');
  t.equal(await gateway.balance(account), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);

  upstream.mode = mp3();
  const next = (await later(gateway, account)).json;
  t.equal((await untilJob(gateway, next.jobId, 'completed', 'failed')).json.status, 'completed', 'it goes on');
  t.equal(said(), 1, 'the unreadable queue is logged once');
});

test('a queue whose first statement fails is opened again', async (t) => {
  const { proxy, gateway, account } = await start(t, { worker: false });
  const { jobId } = (await later(gateway, account)).json;
  // graphile_worker records its task, and keeps a failure of that for ever.
  const lost = proxy.loseAnswer('INSERT 0');
  gateway.app.worker?.start();
  await lost;
  t.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  t.strictSame(await audit(gateway.db), []);
});

test('missing tables are 503 with the command, and nothing stays debited', async (t) => {
  const { gateway, account } = await start(t, { worker: false });
  await sql`drop schema graphile_worker cascade`.execute(gateway.db);
  const refused = await later(gateway, account);
  t.strictSame([refused.status, refused.json.error.code], [503, 'CONFIG_ERROR']);
  t.equal(refused.json.error.details.command, 'npm run migrate');
  t.equal(await gateway.balance(account), FUNDS);

  await sql`drop schema public cascade`.execute(gateway.db);
  await sql`create schema public`.execute(gateway.db);
  gateway.app.worker?.start();
  t.equal((await gateway.call(`/tts/jobs/${randomUUID()}`)).json.error.details.command, 'npm run migrate');
  await migrate(gateway.databaseUrl);
  const { jobId } = (await later(gateway, await gateway.fund(500))).json;
  t.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  t.strictSame(await audit(gateway.db), []);
});

test('a worker replaces a queue that cannot record the end of an entry', async (t) => {
  const { upstream, gateway, account } = await start(t, { worker: true });
  const { jobId } = (await later(gateway, account)).json;
  await untilJob(gateway, jobId, 'completed');
  await sql`
    create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$`.execute(
    gateway.db,
  );
  await sql`create trigger refuse before delete on graphile_worker._private_jobs execute function refuse()`.execute(
    gateway.db,
  );
  const second = (await later(gateway, account)).json;
  t.equal((await untilJob(gateway, second.jobId, 'completed', 'failed')).json.status, 'completed');
  await sql`drop function refuse() cascade`.execute(gateway.db);
  const third = (await later(gateway, account)).json;
  t.equal((await untilJob(gateway, third.jobId, 'completed', 'failed')).json.status, 'completed');
  t.equal(upstream.requests.length, 3, 'each was spoken once');
  t.equal(await gateway.balance(account), FUNDS - 3n * PRICE);
  t.strictSame(await audit(gateway.db), []);
});

test('a claim with a lost response is claimed again after its lease, charged once', async (t) => {
  const { proxy, upstream, gateway, account } = await start(t, { worker: false });
  const { jobId } = (await later(gateway, account, { text: 'Hello lost claim' })).json;
  const lost = proxy.loseAnswer('Hello lost claim');
  gateway.app.worker?.start();
  await lost;
  const { state, fence } = await job(gateway, jobId);
  t.strictSame([state, fence], ['processing', 2], 'the database has seen the claim');
  await endLease(gateway, jobId);
  t.equal((await runTurn(gateway, 'lost_jobs')).count, 1);
  await until(async () => (await job(gateway, jobId)).state === 'completed');
  t.equal((await job(gateway, jobId)).fence, 3);
  t.equal(upstream.requests.length, 1);
  t.equal(await gateway.balance(account), FUNDS - 16n * 18n);
  t.strictSame(await audit(gateway.db), []);
});
