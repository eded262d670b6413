import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { later, untilJob } from '../support/jobs.ts';
import { Drip, openAiError, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { row, start } from './running.ts';

test('JOB_CONCURRENCY jobs run at the same time, and no more', async (t) => {
  const { upstream, gateway, account } = await start(t, { JOB_CONCURRENCY: '3' });
  const open: Drip[] = [];
  upstream.mode = (request, response) => {
    const drip = new Drip();
    open.push(drip);
    drip.mode(request, response);
  };
  const jobs = [];
  for (let index = 0; index < 5; index++) jobs.push((await later(gateway, account, { text: `text ${index}` })).json);
  await upstream.waitForRequests(3);
  const states = async () =>
    (await gateway.db.selectFrom('job').select('state').orderBy('state').execute()).map(({ state }) => state);
  assert.deepEqual(await states(), ['processing', 'processing', 'processing', 'queued', 'queued']);
  for (let index = 0; index < 5; index++) {
    await upstream.waitForRequests(index + 1);
    await open[index]?.write(silentMp3(100));
    open[index]?.end();
  }
  for (const { jobId } of jobs) assert.equal((await untilJob(gateway, jobId, 'completed')).json.status, 'completed');
  assert.equal(upstream.requests.length, 5);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a worker that stops lets its job end first', async (t) => {
  const { upstream, gateway, account } = await start(t, { JOB_CONCURRENCY: '1' });
  const drip = new Drip();
  upstream.mode = drip.mode;
  const { jobId } = (await later(gateway, account)).json;
  await drip.opened;
  const waiting = (await later(gateway, account, { text: 'not begun' })).json;
  await drip.write(silentMp3(100));
  const stopped = gateway.app.worker?.stop();
  drip.end();
  await stopped;
  assert.equal((await row(gateway, jobId)).state, 'completed');
  assert.equal((await row(gateway, waiting.jobId)).state, 'queued');
  assert.deepEqual(await gateway.db.selectFrom('worker').selectAll().execute(), [], 'it has signed off');
  assert.deepEqual(await audit(gateway.db), []);
});

test('operators see the jobs that wait and run, and what became of their holds', async (t) => {
  const { upstream, gateway, account } = await start(t, {}, { worker: false });
  const metrics = async () => (await gateway.app.admin.inject('/metrics')).body;
  const first = (await later(gateway, account, { key: 'k' })).json;
  await later(gateway, account, { key: 'k' });
  assert.match(await metrics(), /^speechgate_queued_jobs 1$/m);
  const drip = new Drip();
  upstream.mode = drip.mode;
  gateway.app.worker?.start();
  await drip.opened;
  const running = await metrics();
  assert.match(running, /^speechgate_queued_jobs 0$/m);
  assert.match(running, /^speechgate_processing_jobs 1$/m);
  await drip.write(silentMp3(100));
  drip.end();
  await untilJob(gateway, first.jobId, 'completed');
  upstream.mode = openAiError(400);
  const second = (await later(gateway, account)).json;
  await untilJob(gateway, second.jobId, 'failed');
  const placed = /speechgate_held_micro_usd_total{flow="card",event="placed"} 396$/m;
  // Counted right after the transaction that a caller may already see.
  await until(async () => /speechgate_holds_total{flow="card",event="voided"} 1$/m.test(await metrics()));
  const text = await metrics();
  assert.match(text, /^speechgate_processing_jobs 0$/m);
  assert.match(text, placed, 'a repeat places no hold');
  assert.match(text, /speechgate_holds_total{flow="card",event="captured"} 1$/m);
});
