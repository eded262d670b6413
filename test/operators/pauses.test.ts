import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Test, test } from 'tap';
import { FLOWS, type PausableFlow, pauseFlows, resumeFlows } from '../../src/operators/pauses.ts';
import { say } from '../journeys/card.ts';
import { type Call, type Gateway, type Reply, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { depositor, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const DEED = { operator: 'alice', reason: 'the provider is being moved' };
/** Of a pause until a process has seen it. */
const SECONDS = 5_000;

const form = (body: string, accept: string): Call => ({
  method: 'POST',
  body,
  headers: { 'content-type': 'application/x-www-form-urlencoded', accept },
});

async function pause(gateway: Gateway, ...flows: PausableFlow[]): Promise<void> {
  await pauseFlows(gateway.db, flows, DEED);
  await until(() => flows.every((flow) => gateway.app.pauses.has(flow)), SECONDS);
}

function assertPaused(reply: Reply, code = 'TTS_UNAVAILABLE'): void {
  assert.equal(reply.status, 503, reply.text);
  assert.equal(reply.json.error.code, code);
  assert.equal(reply.json.error.details.reason, 'paused');
  assert.match(reply.json.error.message, /paused by the operator/);
  assert.ok(Number(reply.headers.get('retry-after')) > 0);
}

async function start(t: Test, options: { worker?: boolean } = {}) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, options);
  return { upstream, gateway, account: await gateway.fund(500) };
}

test('card speech that is paused takes nothing and asks nobody to pay, and goes on when it is resumed', async (t) => {
  const { gateway, upstream, account } = await start(t);
  await pause(gateway, 'card');
  assertPaused(await gateway.call('/tts', say(account)));
  assertPaused(await gateway.call('/tts?text=Hello', { headers: { 'x-credit-account': account } }));
  assertPaused(await gateway.call('/tts', say(undefined)));
  assert.equal((await gateway.call('/tts', say(account, { text: '' }))).status, 400, 'what is wrong is told first');
  assert.equal(await gateway.balance(account), 5_000_000n);
  assert.equal(upstream.requests.length, 0);
  assert.equal((await later(gateway, account)).status, 202, 'jobs are another flow');
  assert.deepEqual(await resumeFlows(gateway.db, ['card', 'jobs'], DEED), ['card']);
  await until(() => !gateway.app.pauses.has('card'), SECONDS);
  assert.equal((await gateway.call('/tts', say(account))).status, 200);
});

test('jobs that are paused: what is queued is spoken, a repeated key is answered, nothing new is taken', async (t) => {
  const { gateway, account } = await start(t);
  const first = await later(gateway, account, { key: 'order 1' });
  await pause(gateway, 'jobs');
  assertPaused(await later(gateway, account));
  assertPaused(await later(gateway, account, { key: 'order 2' }));
  assertPaused(await later(gateway, randomUUID(), { key: 'order 2' }));
  const repeated = await later(gateway, account, { key: 'order 1' });
  assert.deepEqual([repeated.status, repeated.json.jobId], [202, first.json.jobId]);
  assert.equal((await later(gateway, account, { key: 'order 1', text: 'Another' })).status, 400);
  assert.equal((await gateway.call('/tts', say(account))).status, 200, 'speech at once is another flow');
  gateway.app.worker?.start();
  const spoken = await untilJob(gateway, first.json.jobId, 'completed', 'failed');
  assert.equal(spoken.json.status, 'completed');
  assert.equal(await gateway.balance(account), 5_000_000n - 2n * 198n);
});

test('prepaid speech that is paused spends no nonce: the same request is spoken afterwards', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign, balance } = await depositor(gateway, 1000n);
  const signed = await sign(TTS, HELLO);
  await pause(gateway, 'prepaid');
  assertPaused(await gateway.call(TTS, signed));
  assert.equal(await balance(), 1000n);
  assert.equal((await gateway.call(TTS, HELLO)).status, 402, 'a request without payment is asked for a direct one');
  await resumeFlows(gateway.db, ['prepaid'], DEED);
  await until(() => !gateway.app.pauses.has('prepaid'), SECONDS);
  assert.equal((await gateway.call(TTS, signed)).status, 200);
});

test('challenges of direct payments and deposits that are paused are not given', async (t) => {
  const gateway = await startPrepaidGateway(t);
  await pause(gateway, 'direct', 'deposit');
  assertPaused(await gateway.call(TTS, HELLO));
  assertPaused(await gateway.call(`${TTS}?text=Hello`));
  const deposit = await gateway.call('/x402/deposit', { method: 'POST', json: { amountMicroUsd: 1_000_000 } });
  assertPaused(deposit, 'CONFIG_ERROR');
  const { sign } = await depositor(gateway, 1000n);
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200, 'prepaid speech is another flow');
});

test('purchases that are paused open no checkout; people are shown a page', async (t) => {
  const gateway = await startGateway(t);
  await pause(gateway, 'top-up');
  assertPaused(await gateway.call('/top-up', form('amount=500', 'application/json')), 'CONFIG_ERROR');
  for (const reply of [
    await gateway.call('/top-up', form('amount=500', 'text/html')),
    await gateway.call('/top-up', { headers: { accept: 'text/html' } }),
  ]) {
    assert.equal(reply.status, 503);
    assert.match(reply.text, /Adding credit is paused/);
    assert.ok(Number(reply.headers.get('retry-after')) > 0);
  }
  assert.deepEqual(await gateway.db.selectFrom('top_up').select('id').execute(), []);
});

test('replicas see a pause within seconds, one that starts knows it at once; a database that is away changes nothing', async (t) => {
  const first = await startGateway(t);
  const second = await startGateway(t, {}, { databaseUrl: first.databaseUrl });
  await pauseFlows(first.db, FLOWS, DEED);
  await until(() => first.app.pauses.count === FLOWS.length && second.app.pauses.count === FLOWS.length, SECONDS);
  assert.match(await first.app.metrics.scrape(), new RegExp(`^speechgate_paused_flows ${FLOWS.length}$`, 'm'));
  const third = await startGateway(t, {}, { databaseUrl: first.databaseUrl });
  await third.app.pauses.read();
  assert.equal(third.app.pauses.count, FLOWS.length);
  assert.equal((await first.call('/tts/models')).status, 200, 'what takes no money is not paused');

  await first.db.schema.alterTable('paused_flow').renameTo('paused_flow_away').execute();
  await second.app.pauses.read();
  await second.app.pauses.read();
  assert.equal(second.app.pauses.count, FLOWS.length, 'what was known last stands');
});

test('what operators did is written down once, with who and why, and stays', async (t) => {
  const { db } = await startGateway(t);
  assert.deepEqual(await pauseFlows(db, ['card', 'direct'], DEED), ['card', 'direct']);
  assert.deepEqual(await pauseFlows(db, ['card', 'jobs'], { ...DEED, operator: 'bob' }), ['jobs']);
  assert.deepEqual(await resumeFlows(db, ['card'], { operator: 'bob', reason: 'moved' }), ['card']);
  const actions = await db
    .selectFrom('operator_action')
    .select(['operator', 'action', 'subject', 'reason'])
    .orderBy('id')
    .execute();
  assert.deepEqual(
    actions.map(({ operator, action, subject }) => [operator, action, subject]),
    [
      ['alice', 'pause', 'card'],
      ['alice', 'pause', 'direct'],
      ['bob', 'pause', 'jobs'],
      ['bob', 'resume', 'card'],
    ],
  );
  assert.equal(actions[3]?.reason, 'moved');
  await assert.rejects(db.deleteFrom('operator_action').execute(), /never deleted/);
  await assert.rejects(db.updateTable('operator_action').set({ operator: 'eve' }).execute(), /never changes/);
});
