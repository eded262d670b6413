import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { BEAT_MS } from '../../src/queue/queue-worker.ts';
import { send } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { ask, startSeveral } from '../support/several-processes.ts';
import { until } from '../support/until.ts';

const answered = (operation: string): string =>
  `speechgate_http_request_duration_seconds_count{operation="${operation}",status="200",end="answered"}`;

test('both processes answer on one port, and one listener adds up what they counted', async (t) => {
  const several = await startSeveral(t);
  const { url, adminUrl, gateway, child } = several;
  assert.match(child.output(), /listens on http:\/\/127\.0\.0\.1:\d+ \(127\.0\.0\.1:\d+\), with 2 processes/);
  assert.equal(several.logged('listens on').length, 1, 'it is announced once');
  assert.equal((await fetch(`${adminUrl}/livez`)).status, 200);
  const ready = await fetch(`${adminUrl}/readyz`);
  assert.deepEqual(
    [ready.status, await ready.json()],
    [200, { status: 'ok', checks: { database: 'ok', schema: 'ok', processes: '2 of 2 listen' } }],
  );

  assert.deepEqual(new Set(await ask(url, 40)), new Set([200]));
  await until(() => several.logged('^request$').length === 40);
  const servers = new Set(several.logged('^request$').map(({ pid }) => pid));
  assert.deepEqual(servers, new Set(several.pids()), 'each of them has answered some');
  assert.equal(servers.size, 2);
  assert.ok(!servers.has(child.process.pid as number), 'the primary serves nothing');
  assert.equal(await several.metric(answered('getHealth')), 40);

  const account = await gateway.fund(500);
  await placeCardHold(gateway.db, account, 100n, 60);
  assert.equal(await several.metric('speechgate_pending_holds'), 1, 'what the database tells is told once');
  const headers = { 'x-credit-account': account };
  for (let request = 0; request < 3; request++) {
    assert.equal((await send(url, '/tts?text=Hello+world', { headers })).status, 200);
  }
  assert.equal(await several.metric(answered('getSpeech')), 3);
  assert.equal(await several.metric('speechgate_holds_total{flow="card",event="captured"}'), 3);
  assert.equal(await several.metric('speechgate_upstream_duration_seconds_count{outcome="ok"}'), 3);
  const startedAt = (await several.metric('process_start_time_seconds')) ?? 0;
  assert.ok(Math.abs(Date.now() / 1000 - startedAt) < 120, `started at ${startedAt}`);
  assert.equal(await child.stop(), 0);
});

test('one of the processes runs the jobs, JOB_CONCURRENCY at a time, and the one that takes its place does', async (t) => {
  const several = await startSeveral(t, { SPEECH_TIMEOUT_MS: '5000', LOG_LEVEL: 'info' });
  const { url, gateway, child } = several;
  const call = (path: string, sent?: Parameters<typeof send>[2]) => send(url, path, sent);
  const account = await gateway.fund(500);
  const workers = async () => (await gateway.db.selectFrom('worker').select('id').execute()).length;
  await until(async () => (await workers()) === 1);
  const job = (await later({ call }, account, { key: 'first' })).json;
  assert.equal((await untilJob({ call }, job.jobId, 'completed', 'failed')).json.status, 'completed');
  assert.equal(await workers(), 1);

  const [worker = 0] = several.pids();
  const attempts = () => several.logged('^an attempt at a job begins').map(({ pid }) => pid);
  await until(() => attempts().length > 0);
  assert.deepEqual(attempts(), [worker]);
  process.kill(worker, 'SIGKILL');
  await until(() => several.pids().length === 3);
  const next = (await later({ call }, account, { key: 'second' })).json;
  assert.equal((await untilJob({ call }, next.jobId, 'completed', 'failed')).json.status, 'completed');
  await until(() => attempts().length > 1);
  assert.deepEqual(attempts(), [worker, several.pids()[2]]);
  assert.equal(await child.stop(), 0);
});

test('with --role=web none of them runs jobs', async (t) => {
  const several = await startSeveral(t, {}, ['--role=web']);
  assert.equal(await several.processes(), '2 of 2 listen');
  await sleep(BEAT_MS);
  assert.deepEqual(await several.gateway.db.selectFrom('worker').select('id').execute(), []);
  assert.equal(await several.child.stop(), 0);
});

test('with WEB_CONCURRENCY=1 there is one process, which has the listener of its own', async (t) => {
  const alone = await startSeveral(t, { WEB_CONCURRENCY: '1' });
  const ready = (await (await fetch(`${alone.adminUrl}/readyz`)).json()) as object;
  assert.deepEqual(ready, { status: 'ok', checks: { database: 'ok', schema: 'ok' } });
  assert.deepEqual(await ask(alone.url, 3), [200, 200, 200]);
  assert.equal(await alone.metric(answered('getHealth')), 3);
  assert.deepEqual(alone.pids(), [undefined], 'lines of the log name no process');
  assert.equal(await alone.child.stop(), 0);
});
