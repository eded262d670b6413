import assert from 'node:assert/strict';
import { test } from 'tap';
import { send } from '../support/gateway.ts';
import { holdOnCard } from '../support/holds.ts';
import { later, untilJob } from '../support/jobs.ts';
import { ask, startSeveral } from '../support/several-processes.ts';
import { until } from '../support/until.ts';

const answered = (operation: string): string =>
  `speechgate_http_request_duration_seconds_count{operation="${operation}",status="200",end="answered"}`;

test('both processes share one port and one admin listener with summed metrics', async (t) => {
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
  await holdOnCard(gateway.db, account, 100n);
  assert.equal(await several.metric('speechgate_pending_holds'), 1, 'what the database tells is told once');
  const headers = { 'x-credit-account': account };
  for (let request = 0; request < 3; request++) {
    assert.equal((await send(url, '/tts?text=Hello+world', { headers })).status, 200);
  }
  for (const metric of [
    answered('getSpeech'),
    'speechgate_holds_total{flow="card",event="captured"}',
    'speechgate_upstream_duration_seconds_count{outcome="ok"}',
  ]) {
    await until(async () => (await several.metric(metric)) === 3);
  }
  assert.equal(await child.stop(), 0);
});

test('one process runs the jobs, and its replacement takes them over', async (t) => {
  const several = await startSeveral(t, { SPEECH_TIMEOUT_MS: '5000', LOG_LEVEL: 'info' });
  const { url, gateway, child } = several;
  const call = (path: string, sent?: Parameters<typeof send>[2]) => send(url, path, sent);
  const account = await gateway.fund(500);
  const job = (await later({ call }, account, { key: 'first' })).json;
  assert.equal((await untilJob({ call }, job.jobId, 'completed', 'failed')).json.status, 'completed');

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

test('with WEB_CONCURRENCY=1 a single process has its own admin listener', async (t) => {
  const alone = await startSeveral(t, { WEB_CONCURRENCY: '1' });
  const ready = (await (await fetch(`${alone.adminUrl}/readyz`)).json()) as object;
  assert.deepEqual(ready, { status: 'ok', checks: { database: 'ok', schema: 'ok' } });
  assert.deepEqual(await ask(alone.url, 3), [200, 200, 200]);
  assert.equal(await alone.metric(answered('getHealth')), 3);
  assert.deepEqual(alone.pids(), [undefined], 'lines of the log name no process');
  assert.equal(await alone.child.stop(), 0);
});
