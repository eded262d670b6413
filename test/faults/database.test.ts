import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import type { FastifyBaseLogger } from 'fastify';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { Config } from '../../src/config/config.ts';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { Captures } from '../../src/payments/hold-placer.ts';
import { booksClosed } from '../support/books.ts';
import { testDatabase } from '../support/database.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { startGateway } from '../support/gateway.ts';
import { holdOnCard } from '../support/holds.ts';
import { sweepVictim } from '../support/kill.ts';
import { fundedWallet, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { testRunner } from '../support/reconcile.ts';
import { CAPTURE, recordStatements } from '../support/recorded-statements.ts';
import { ControlledStream, silentMp3, startStubUpstream, testUpstream } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { EXPIRED, startTlsServer } from '../support/tls-server.ts';
import { until } from '../support/until.ts';

const ENDPOINTS = [
  '/tts?text=hello',
  '/credits/6b1f0f9e-0000-4000-8000-000000000000',
  '/top-up/status?account=6b1f0f9e-0000-4000-8000-000000000000',
];
const FORM = '/top-up?account=6b1f0f9e-0000-4000-8000-000000000000';
const headers = { 'x-credit-account': '6b1f0f9e-0000-4000-8000-000000000000' };

test('missing tables are 503 CONFIG_ERROR with the fix, and fail readiness', async (t) => {
  const gateway = await startGateway(t);
  await sql`drop schema public cascade`.execute(gateway.db);
  await sql`create schema public`.execute(gateway.db);
  for (const path of ENDPOINTS) {
    const reply = await gateway.call(path, { headers });
    t.equal(reply.status, 503, path);
    t.equal(reply.json.error.code, 'CONFIG_ERROR');
    t.equal(reply.json.error.details.command, 'npm run migrate');
  }
  t.equal((await gateway.call('/top-up', { method: 'POST' })).json.error.code, 'CONFIG_ERROR');
  const ready = await gateway.app.admin.inject('/readyz');
  t.equal(ready.statusCode, 503);
  t.match(ready.json().checks.schema, /npm run migrate/);
  t.equal((await gateway.app.admin.inject('/livez')).statusCode, 200);
  t.equal((await gateway.call('/tts/models')).status, 200, 'what needs no table is served');
  t.match((await gateway.call(FORM)).text, /method="post"/);
});

test('a refused login is 503 that names DATABASE_URL, and /readyz tells the cause', async (t) => {
  const wrong = new URL((await testDatabase(t)).url);
  wrong.password = 'wrong';
  const gateway = await startGateway(t, {}, { databaseUrl: wrong.href });
  const reply = await gateway.call('/tts?text=hello', { headers });
  t.equal(reply.status, 503);
  const { details } = reply.json.error;
  t.strictSame([details.reason, details.setting, details.command], ['database_refused', 'DATABASE_URL', undefined]);
  const ready = await gateway.app.admin.inject('/readyz');
  t.match(ready.json().checks.database, /^DATABASE_URL can't be used \(password authentication failed/);
});

test('requests are 503 while the database is down and succeed once it recovers', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, { databaseUrl: proxy.url });
  const account = await gateway.fund(500);
  proxy.cut();
  for (const path of ENDPOINTS) {
    const reply = await gateway.call(path, { headers });
    t.equal(reply.status, 503, path);
    t.equal(reply.json.error.code, 'CONFIG_ERROR');
  }
  t.equal((await gateway.app.admin.inject('/readyz')).statusCode, 503);
  t.match((await gateway.call(FORM)).text, /method="post"/, 'the form needs no database');
  proxy.restore();
  const reply = await gateway.call('/tts?text=hello', { headers: { 'x-credit-account': account } });
  t.equal(reply.status, 200);
  t.equal((await gateway.app.admin.inject('/readyz')).statusCode, 200);
});

test('requests are 503 while the certificate of the database is not accepted', async (t) => {
  const { url, ca } = await startTlsServer(t, EXPIRED);
  const upstream = await testUpstream(t);
  const databaseUrl = `${url}?sslmode=verify-full&sslrootcert=${ca}`;
  const env = {
    SPEECH_BASE_URL: upstream.url,
    STRIPE_SECRET_KEY: 'rk_test_none',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
  };
  const gateway = await startGateway(t, env, { databaseUrl, worker: false });
  const job = { path: '/tts?text=hello&async=true', call: { headers } };
  const buy = { path: '/top-up', call: { method: 'POST' } };
  for (const { path, call } of [...ENDPOINTS.map((path) => ({ path, call: { headers } })), job, buy]) {
    const reply = await gateway.call(path, call);
    t.equal(reply.status, 503, `${path} ${reply.text.slice(0, 200)}`);
    t.equal(reply.json.error.details.reason, 'database_unavailable', path);
  }
  t.equal((await gateway.app.admin.inject('/readyz')).statusCode, 503);
  t.equal(upstream.requests.length, 0);
});

test('a capture waits for the database even after its lease expires', async (t) => {
  const { proxy, gateway, db, account, drip } = await startOutage(t);
  await gateway.app.reconcilers.turn();
  const capture = recordStatements(t).holdBack(CAPTURE);
  const reply = gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  await drip.opened;
  proxy.cut();
  await drip.write(silentMp3(500));
  drip.end();
  t.equal((await reply).status, 200);
  // As if the outage had lasted an hour: the lease has ended, and no reconciler had a turn.
  const { rows } = await sql<{ now: Date }>`select now() as now`.execute(db);
  await sql`update transfer set lease_until = now() - interval '59 minutes' where state = 'pending'`.execute(db);
  await sql`update reconciler set started_at = now() - interval '1 hour'`.execute(db);
  proxy.restore();
  await capture.held;
  const reconcilers = testRunner(
    { ...gateway, config: { ...gateway.config, reconcileIntervalMs: 1_000 } },
    { names: ['expired_holds'] },
  );
  reconcilers.start();
  await until(async () => {
    const turn = await sql<{ at: Date }>`
      select started_at as at from reconciler where name = 'expired_holds'`.execute(db);
    return (turn.rows[0]?.at as Date) > (rows[0]?.now as Date);
  });
  await reconcilers.stop();
  capture.letGo();
  await booksClosed(db);
  t.equal(await gateway.balance(account), 4_999_802n, 'the first turn after the outage has voided nothing');
  t.strictSame(await audit(db), []);
});

test('a stop ends while captures wait for the database', async (t) => {
  const { proxy, gateway, db, account, drip } = await startOutage(t);
  const answer = buffer(await askForFlowingAudio(gateway.url, account, drip));
  proxy.cut();
  drip.end();
  await answer;
  await until(() => gateway.log.some(({ msg }) => msg.startsWith('the database did not confirm a charge')));
  await gateway.app.close();
  t.ok(gateway.log.some(({ msg }) => msg.startsWith('a delivered response is probably not charged')));
  const left = gateway.log.find(({ msg }) => msg.startsWith('the process stopped while the database was unavailable'));
  t.strictSame([left?.captures, left?.amountMicroUsd], [1, 198], 'how many and how much (R55)');
  proxy.restore();
  await sweepVictim(gateway);
  t.equal(await gateway.balance(account), 5_000_000n);
  t.strictSame(await audit(db), []);
});

test('what is delivered long after a stop began waits for the database too', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const proxy = await startTcpProxy(t, databaseUrl);
  const gateway = await startGateway(t, {}, { databaseUrl });
  const held = await holdOnCard(gateway.db, await gateway.fund(500), 198n);
  assert.ok(held.outcome === 'placed');
  const db = openDatabase(proxy.url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const log = { warn: () => proxy.restore() } as unknown as FastifyBaseLogger;
  const captures = new Captures(db, log, 10);
  captures.stop();
  const { now } = performance;
  t.teardown(() => {
    performance.now = now;
  });
  performance.now = () => now.call(performance) + 60_000;
  proxy.cut();
  assert.equal(await captures.capture(held.hold, log), true);
});

test('beyond the bound of waiting captures no new hold is placed (R55)', async (t) => {
  const adjust = (config: Config): Config => ({ ...config, maxWaitingCaptures: 1 });
  const gateway = await startPrepaidGateway(t, {}, { adjust });
  const account = await gateway.fund(500);
  const payer = await fundedWallet(gateway, 1_000_000n);
  const byCard = () => gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  const byWallet = async () => gateway.call(TTS, await payer.sign(TTS, HELLO));
  const capture = recordStatements(t).holdBack(CAPTURE);
  t.equal((await byCard()).status, 200);
  await capture.held;
  const metrics = async () => (await gateway.app.admin.inject('/metrics')).body;
  t.match(await metrics(), /^speechgate_waiting_captures 1$/m);
  const spoken = gateway.upstream.requests.length;
  for (const ask of [byCard, byWallet]) {
    const { status, headers, json } = await ask();
    t.strictSame([status, json.error.code, json.error.details.reason], [503, 'TTS_UNAVAILABLE', 'too_many_captures']);
    t.ok(Number(headers.get('retry-after')) > 0);
  }
  t.equal(gateway.upstream.requests.length, spoken);
  capture.letGo();
  for (const ask of [byCard, byWallet]) {
    await until(async () => /^speechgate_waiting_captures 0$/m.test(await metrics()));
    t.equal((await ask()).status, 200);
  }
  await booksClosed(gateway.db);
  t.equal(await gateway.balance(account), 5_000_000n - 2n * 198n);
  t.strictSame(await audit(gateway.db), []);
});

test('a hold is leased for SPEECH_TIMEOUT_MS and 30 seconds (R55)', async (t) => {
  const gateway = await startPrepaidGateway(t, { SPEECH_TIMEOUT_MS: '2500' });
  const payer = await fundedWallet(gateway, 1_000_000n);
  const byCard = { headers: { 'x-credit-account': await gateway.fund(500) } };
  t.equal((await gateway.call('/tts?text=Hello+world', byCard)).status, 200);
  t.equal((await gateway.call(TTS, await payer.sign(TTS, HELLO))).status, 200);
  const seconds = sql<number>`extract(epoch from lease_until - created_at)::float8`.as('seconds');
  const leases = gateway.db.selectFrom('transfer').select(['kind', seconds]).where('lease_until', 'is not', null);
  t.strictSame(await leases.orderBy('kind').execute(), [
    { kind: 'charge', seconds: 33 },
    { kind: 'spend', seconds: 33 },
  ]);
});

/** A gateway whose database can be taken away, with audio that comes as the test says; `db` is always there. */
async function startOutage(t: Test) {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const drip = new ControlledStream();
  const upstream = await startStubUpstream({ mode: drip.mode });
  t.teardown(() => upstream.close());
  const gateway = await startGateway(
    t,
    { SPEECH_BASE_URL: upstream.url, LOG_LEVEL: 'warn' },
    { databaseUrl: proxy.url },
  );
  const db = openDatabase(url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  return { proxy, gateway, db, drip, account: await gateway.fund(500) };
}
