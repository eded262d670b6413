import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { startGateway } from '../support/gateway.ts';
import { Drip, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';

const ENDPOINTS = [
  '/tts?text=hello',
  '/credits/6b1f0f9e-0000-4000-8000-000000000000',
  '/top-up/status?account=6b1f0f9e-0000-4000-8000-000000000000',
];
const headers = { 'x-credit-account': '6b1f0f9e-0000-4000-8000-000000000000' };

test('missing tables: 503 CONFIG_ERROR with the command that repairs it, and readiness is false', async (t) => {
  const gateway = await startGateway(t);
  await sql`drop schema public cascade`.execute(gateway.db);
  await sql`create schema public`.execute(gateway.db);
  for (const path of ENDPOINTS) {
    const reply = await gateway.call(path, { headers });
    assert.equal(reply.status, 503, path);
    assert.equal(reply.json.error.code, 'CONFIG_ERROR');
    assert.equal(reply.json.error.details.command, 'npm run migrate');
  }
  assert.equal((await gateway.call('/top-up', { method: 'POST' })).json.error.code, 'CONFIG_ERROR');
  const ready = await gateway.app.admin.inject('/readyz');
  assert.equal(ready.statusCode, 503);
  assert.match(ready.json().checks.schema, /npm run migrate/);
  assert.equal((await gateway.app.admin.inject('/livez')).statusCode, 200);
  assert.equal((await gateway.call('/tts/models')).status, 200, 'what needs no table is served');
});

test('database down: 503, and served again as soon as it is back', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, { databaseUrl: proxy.url });
  const account = await gateway.fund(500);
  proxy.cut();
  for (const path of ENDPOINTS) {
    const reply = await gateway.call(path, { headers });
    assert.equal(reply.status, 503, path);
    assert.equal(reply.json.error.code, 'CONFIG_ERROR');
  }
  assert.equal((await gateway.app.admin.inject('/readyz')).statusCode, 503);
  proxy.restore();
  const reply = await gateway.call('/tts?text=hello', { headers: { 'x-credit-account': account } });
  assert.equal(reply.status, 200);
  assert.equal((await gateway.app.admin.inject('/readyz')).statusCode, 200);
});

test('who tops up an account that can not be looked up gets the launcher all the same', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const gateway = await startGateway(t, {}, { databaseUrl: proxy.url });
  const path = '/top-up?account=6b1f0f9e-0000-4000-8000-000000000000';
  assert.match((await gateway.call(path)).text, /There is no account/);
  proxy.cut();
  const down = await gateway.call(path);
  assert.equal(down.status, 200);
  assert.match(down.text, /method="post"/);
  proxy.restore();
  await sql`drop schema public cascade`.execute(gateway.db);
  const notSetUp = await gateway.call(path);
  assert.equal(notSetUp.status, 200);
  assert.match(notSetUp.text, /method="post"/);
});

test('database lost between debit and capture: delivered once it is back, charged once', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, { databaseUrl: proxy.url });
  const account = await gateway.fund(500);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const call = gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  await drip.opened;
  proxy.cut();
  drip.write(silentMp3(500));
  drip.end();
  await until(() => upstream.requests.length === 1);
  assert.equal(await upstream.requests[0]?.closed, 'complete');
  proxy.restore();
  const reply = await call;
  assert.equal(reply.status, 200);
  assert.deepEqual(reply.bytes, Buffer.from(silentMp3(500)));
  assert.equal(await gateway.balance(account), 4_999_802n);
  assert.deepEqual(await audit(gateway.db), []);
});

test('database lost between debit and void: the hold is voided when its lease has passed', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, { databaseUrl: proxy.url });
  const account = await gateway.fund(500);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const call = gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  await drip.opened;
  proxy.cut();
  drip.reset();
  assert.ok((await call).status >= 502);
  proxy.restore();
  assert.equal(await gateway.balance(account), 4_999_802n);
  await gateway.db.updateTable('transfer').set({ lease_until: sql`now()` }).where('state', '=', 'pending').execute();
  const { voidExpiredHolds } = await import('../../src/ledger/hold.ts');
  assert.deepEqual(
    await Promise.all([voidExpiredHolds(gateway.db), voidExpiredHolds(gateway.db)]).then((n) => n.sort()),
    [0, 1],
  );
  assert.equal(await gateway.balance(account), 5_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
});
