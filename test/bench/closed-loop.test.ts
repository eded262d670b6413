import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Test, test } from 'tap';
import { type ClosedLoop, runClosedLoop } from '../../bench/load/closed-loop.ts';

async function jobAt(t: Test, listener: RequestListener): Promise<ClosedLoop> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return {
    kind: 'closed-loop',
    port: (server.address() as AddressInfo).port,
    plan: { path: '/tts', body: '{}', headers: {}, payment: { by: 'nothing' } },
    expected: { status: 200, bytes: 5 },
    ...{
      concurrency: 4,
      warmUpSeconds: 0,
      seconds: 0.1,
      most: 1_000_000,
      targetPid: process.pid,
      postgresPid: undefined,
    },
  };
}

test('requests are counted that are answered within the time', async (t) => {
  let answered = 0;
  const job = await jobAt(t, (_request, response) => {
    answered++;
    response.end('audio');
  });
  const { requests, seconds, p50Ms, p99Ms, memory } = await runClosedLoop(job);
  assert.ok(requests > 0 && requests <= answered, `${requests} of ${answered}`);
  assert.ok(seconds >= 0.09 && p50Ms > 0 && p50Ms <= p99Ms && memory > 1_000_000);
});

test('a run ends when its requests are used up', async (t) => {
  const job = await jobAt(t, (_request, response) => response.end('audio'));
  const { requests, seconds } = await runClosedLoop({ ...job, most: 10, seconds: 60 });
  assert.equal(requests, 10);
  assert.ok(seconds < 10);
});

test('one answer of another status or length ends the run', async (t) => {
  for (const spoil of [
    { status: 503, body: 'audio' },
    { status: 200, body: 'audi' },
  ]) {
    let answered = 0;
    const job = await jobAt(t, (_request, response) => {
      const isSpoilt = ++answered === 20;
      response.writeHead(isSpoilt ? spoil.status : 200).end(isSpoilt ? spoil.body : 'audio');
    });
    await assert.rejects(runClosedLoop(job), /status \d+ with \d bytes instead of 200 with 5/);
  }
});

test('a connection that the target closes ends the run', async (t) => {
  const job = await jobAt(t, (request) => request.socket.destroy());
  await assert.rejects(runClosedLoop(job));
});
