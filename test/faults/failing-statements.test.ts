import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type pg from 'pg';
import { test } from 'tap';
import { openPool, openQueuePool } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { testCheckout } from '../support/checkout.ts';
import { testDatabase } from '../support/database.ts';
import { failStatements } from '../support/failing-statements.ts';
import { startGateway } from '../support/gateway.ts';
import { testUpstream } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

const CAPTURES = { table: 'transfer', on: 'update', when: sql`new.state = 'posted'` } as const;

test('a capture is retried after a database outage error', async (t) => {
  const upstream = await testUpstream(t);
  for (const state of ['XX000', '58030', '40P01', '55000']) {
    const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
    const account = await gateway.fund(500);
    const failing = await failStatements(gateway.db, { ...CAPTURES, state, times: 2 });
    const reply = await gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
    t.strictSame([reply.status, reply.bytes.length > 1000], [200, true], state);
    await booksClosed(gateway.db);
    t.equal(await failing.count(), 2);
    t.equal(await gateway.balance(account), 4_999_802n);
    t.strictSame(await audit(gateway.db), []);
  }
});

test('an unexpected database error on a hold is 500 and charges nothing', async (t) => {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  await failStatements(gateway.db, { table: 'transfer', on: 'insert', when: sql`true`, state: 'P0001' });
  const reply = await gateway.call('/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
  t.strictSame([reply.status, reply.json.error.code], [500, 'INTERNAL_ERROR']);
  t.strictSame(reply.json.error.details, { payment: { state: 'not_charged', amountMicroUsd: 0 } });
  t.equal(await gateway.balance(account), 5_000_000n);
  t.match(reply.json.error.message, /x-trace-id/);
});

for (const [state, status] of [
  ['XX000', 503],
  ['P0001', 500],
] as const) {
  test(`a failed credit (${state}) tells the buyer to reload, and the reload credits it`, async (t) => {
    const checkout = await testCheckout(t);
    const gateway = await startGateway(t, checkout.env);
    const opened = await gateway.call('/top-up', {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: 'amount=700',
    });
    const { pathname, search } = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
    const failing = await failStatements(gateway.db, {
      ...{ table: 'transfer', on: 'insert', when: sql`new.kind = 'top_up'`, state },
    });
    const page = await gateway.call(pathname + search);
    t.equal(page.status, status);
    t.match(page.headers.get('content-type') ?? '', /^text\/html/);
    t.match(page.text, /Do not pay again: if you have paid, it is credited automatically/);
    await failing.mend();
    const later = await gateway.call(pathname + search);
    t.equal(later.status, 200);
    t.match(later.text, /\$7\.00 was added/);
    t.strictSame(await audit(gateway.db), []);
  });
}

/** The server gives a statement up after this time, and the client 2 s later. */
const STATEMENT_TIMEOUT_MS = 1_000;

/** As Kysely asks, which tells the pool of no error. */
async function ask(pool: pg.Pool, text: string, values?: unknown[]): Promise<unknown[]> {
  const client = await pool.connect();
  try {
    return (await client.query(text, values)).rows;
  } finally {
    client.release();
  }
}

test('connections to a dead server time out and are replaced', async (t) => {
  const { url } = await testDatabase(t);
  const isReplaced = async (open: typeof openQueuePool, text: string, values?: unknown[]) => {
    const proxy = await startTcpProxy(t, url);
    const pool = open(proxy.url, { maxConnections: 1, statementTimeoutMs: STATEMENT_TIMEOUT_MS });
    t.teardown(() => pool.end());
    assert.deepEqual(await ask(pool, text, values), [{ one: 1 }]);
    proxy.abandon();
    await assert.rejects(ask(pool, text, values), /Query read timeout/);
    assert.deepEqual(await ask(pool, text, values), [{ one: 1 }], 'by another connection');
  };
  const ofEach = [openPool, openQueuePool].map((open) =>
    Promise.all([isReplaced(open, 'select $1::int as one', [1]), isReplaced(open, 'select 1 as one')]),
  );
  await Promise.all(ofEach);
});

test('a database that accepts connections but never responds is 503', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const gateway = await startGateway(t, {}, { databaseUrl: proxy.url });
  const account = await gateway.fund(500);
  proxy.freeze();
  const replies = await Promise.all([
    gateway.call(`/credits/${account}`),
    gateway.call('/tts?text=hello', { headers: { 'x-credit-account': account } }),
    gateway.call(`/top-up/status?account=${account}`),
  ]);
  for (const reply of replies) {
    t.equal(reply.status, 503);
    t.equal(reply.json.error.code, 'CONFIG_ERROR');
  }
  proxy.restore();
  t.equal((await gateway.call(`/credits/${account}`)).status, 200);
});
