import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'tap';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { cutChunked, openAiError, startStubUpstream } from '../support/stub-upstream.ts';
import { unguarded } from '../support/unguarded.ts';

const FAMILIES = [
  'speechgate_http_request_duration_seconds',
  'speechgate_holds_total',
  'speechgate_held_micro_usd_total',
  'speechgate_pending_holds',
  'speechgate_oldest_pending_hold_seconds',
  'speechgate_reconciler_repairs_total',
  'speechgate_upstream_first_byte_seconds',
  'speechgate_upstream_duration_seconds',
  'speechgate_rate_limit_refusals_total',
  'speechgate_database_connections',
  'speechgate_database_idle_connections',
  'speechgate_database_waiting',
  'process_cpu_seconds_total',
  'nodejs_eventloop_lag_seconds',
];

/** The sample's value by its name and labels as they are printed, or undefined. */
const sample = (text: string, name: string): number | undefined => {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length + 1));
};

async function scrape(gateway: Gateway): Promise<string> {
  const reply = await gateway.app.admin.inject({ url: '/metrics' });
  assert.equal(reply.statusCode, 200);
  assert.match(String(reply.headers['content-type']), /^text\/plain; version=0\.0\.4/);
  return reply.body;
}

const speak = (gateway: Gateway, account: string, text = 'Hello world') =>
  gateway.call('/tts', { method: 'POST', json: { text }, headers: { 'x-credit-account': account } });

test('R40: a scrape tells requests, money, upstream and refusals, and no text, id or address', async (t) => {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, RATE_LIMIT_MAX: '3' });
  const before = await scrape(gateway);
  for (const family of FAMILIES) assert.ok(before.includes(`# TYPE ${family} `), family);
  assert.equal(sample(before, 'speechgate_holds_total{flow="card",event="placed"}'), undefined);

  const account = await gateway.fund(500);
  const secret = 'canary of the text';
  assert.equal((await speak(gateway, account, secret)).status, 200);
  upstream.mode = openAiError(500);
  assert.equal((await speak(gateway, account)).status, 502);
  upstream.mode = openAiError(429);
  assert.equal((await speak(gateway, account)).status, 503);
  assert.equal((await speak(gateway, account)).status, 429);
  await gateway.call(`/nowhere/${account}`);
  await gateway.call(`/credits/${account}`);

  const after = await scrape(gateway);
  const value = (name: string) => sample(after, name);
  const requests = (labels: string) =>
    value(`speechgate_http_request_duration_seconds_count{${labels},end="answered"}`);
  assert.equal(requests('operation="createSpeech",status="200"'), 1);
  assert.equal(requests('operation="createSpeech",status="502"'), 1);
  assert.equal(requests('operation="createSpeech",status="503"'), 1);
  assert.equal(requests('operation="createSpeech",status="429"'), 1);
  assert.equal(requests('operation="none",status="404"'), 1);
  assert.equal(requests('operation="getCredits",status="200"'), 1);
  assert.equal(value('speechgate_holds_total{flow="card",event="placed"}'), 3);
  assert.equal(value('speechgate_holds_total{flow="card",event="captured"}'), 1);
  assert.equal(value('speechgate_holds_total{flow="card",event="voided"}'), 2);
  assert.equal(value('speechgate_held_micro_usd_total{flow="card",event="placed"}'), 18 * 18 + 2 * 198);
  assert.equal(value('speechgate_held_micro_usd_total{flow="card",event="captured"}'), 18 * 18);
  assert.equal(value('speechgate_held_micro_usd_total{flow="card",event="voided"}'), 2 * 198);
  assert.equal(value('speechgate_upstream_first_byte_seconds_count'), 1);
  assert.equal(value('speechgate_upstream_duration_seconds_count{outcome="ok"}'), 1);
  assert.equal(value('speechgate_upstream_duration_seconds_count{outcome="TTS_UPSTREAM_ERROR"}'), 1);
  assert.equal(value('speechgate_upstream_duration_seconds_count{outcome="TTS_UNAVAILABLE"}'), 1);
  assert.equal(value('speechgate_rate_limit_refusals_total{scope="account"}'), 1);
  assert.equal(value('speechgate_pending_holds'), 0);
  assert.equal(value('speechgate_oldest_pending_hold_seconds'), 0);
  assert.ok((value('speechgate_database_connections') ?? 0) > 0);
  assert.equal(value('speechgate_database_waiting'), 0);
  for (const hidden of [account, secret, 'canary', '127.0.0.1', gateway.databaseUrl]) {
    assert.ok(!after.includes(hidden), hidden);
  }
});

test('an upstream that breaks off is told from one that ends', async (t) => {
  const upstream = await startStubUpstream({ mode: cutChunked() });
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  await assert.rejects(speak(gateway, account));
  const text = await scrape(gateway);
  assert.equal(sample(text, 'speechgate_upstream_duration_seconds_count{outcome="TTS_UPSTREAM_ERROR"}'), 1);
  assert.equal(sample(text, 'speechgate_upstream_first_byte_seconds_count'), 1);
});

test('a pending hold and its age are read from the database when they are scraped', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const held = await placeCardHold(gateway.db, account, 100n, 60);
  assert.equal(held.outcome, 'held');
  await unguarded(gateway.db, (db) =>
    db
      .updateTable('transfer')
      .set({ created_at: new Date(Date.now() - 90_000) })
      .where('state', '=', 'pending')
      .execute(),
  );
  const text = await scrape(gateway);
  assert.equal(sample(text, 'speechgate_pending_holds'), 1);
  const age = sample(text, 'speechgate_oldest_pending_hold_seconds') ?? 0;
  assert.ok(age > 85, `${age} seconds`);
});

test('without a database the scrape answers, and what only the database knows has no value', async (t) => {
  const gateway = await startGateway(t, {}, { databaseUrl: 'postgres://postgres@127.0.0.1:1/none' });
  const text = await scrape(gateway);
  assert.equal(sample(text, 'speechgate_pending_holds'), undefined);
  assert.equal(sample(text, 'speechgate_oldest_pending_hold_seconds'), undefined);
  assert.equal(sample(text, 'speechgate_database_connections'), 0);
});

test('a value that never comes holds no scrape up, is asked for once, and shows when it is there', async () => {
  const metrics = new Metrics();
  let reads = 0;
  let arrive: (values: { depth: number }) => void = () => {};
  metrics.addGauges('process', { depth: 'Jobs in the queue.' }, () => {
    reads += 1;
    return new Promise((resolve) => {
      arrive = resolve;
    });
  });
  assert.equal(sample(await metrics.scrape(), 'depth'), undefined);
  const second = metrics.scrape();
  assert.equal(reads, 1);
  arrive({ depth: 7 });
  assert.equal(sample(await second, 'depth'), 7);
});

test('each app counts for itself, and what reconcilers repair by reconciler', async (t) => {
  const [one, two] = [await startGateway(t), await startGateway(t)];
  await one.call('/');
  const count = 'speechgate_http_request_duration_seconds_count{operation="getHealth",status="200",end="answered"}';
  assert.equal(sample(await scrape(one), count), 1);
  assert.equal(sample(await scrape(two), count), undefined);

  const metrics = new Metrics();
  metrics.repaired('expired_holds', 3);
  metrics.repaired('top_ups', 1);
  const text = await metrics.scrape();
  assert.equal(sample(text, 'speechgate_reconciler_repairs_total{reconciler="expired_holds"}'), 3);
  assert.equal(sample(text, 'speechgate_reconciler_repairs_total{reconciler="top_ups"}'), 1);
});

test('the public listener serves no metrics', async (t) => {
  const gateway = await startGateway(t);
  assert.equal((await gateway.call('/metrics')).status, 404);
  assert.equal((await gateway.call(`/metrics?${randomUUID()}`)).status, 404);
});
