import assert from 'node:assert/strict';
import { test } from 'tap';
import { startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { mp3, openAiError, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

test('a job is queued, and each attempt at it ends, in lines with its trace id', async (t) => {
  const upstream = await startStubUpstream({ mode: openAiError(503) });
  t.teardown(() => upstream.close());
  const env = { SPEECH_BASE_URL: upstream.url, LOG_LEVEL: 'info' };
  const gateway = await startGateway(t, env, { worker: true });
  const account = await gateway.fund(500);
  const accepted = await later(gateway, account);
  const { jobId } = accepted.json;
  await upstream.waitForRequests(1);
  upstream.mode = mp3();
  await untilJob(gateway, jobId, 'completed');
  await until(() => gateway.log.some(({ end }) => end === 'completed'));
  const lines = gateway.log.filter((line) => line.job === jobId);
  const traceId = accepted.headers.get('x-trace-id');
  assert.ok(lines.every((line) => line.traceId === traceId));
  assert.deepEqual(
    lines
      .filter(({ err }) => !err)
      .map(({ msg, attempt, end, chargedMicroUsd }) => [msg, attempt, end, chargedMicroUsd]),
    [
      ['an attempt at a job begins', 1, undefined, undefined],
      ['an attempt at a job has ended', 1, 'retry', undefined],
      ['an attempt at a job begins', 2, undefined, undefined],
      ['an attempt at a job has ended', 2, 'completed', 198],
    ],
  );
});
