import assert from 'node:assert/strict';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Test, test } from 'tap';
import { type Load, latencyOf, type PartResult, runLoad } from '../../../lab/bench/load/load.ts';
import { ResponseReader } from '../../../lab/bench/load/response-reader.ts';
import { markdownTable, plainTable } from '../../../lab/bench/report/cells.ts';
import { linesOf } from '../../../lab/bench/report/comparison.ts';
import { withFigures } from '../../../lab/bench/report/docs.ts';
import { tablesOf } from '../../../lab/bench/report/tables.ts';
import { selectRows } from '../../../lab/bench/rows.ts';
import { quantile, spread } from '../../../lab/bench/statistics.ts';
import { listensFor } from '../../support/listening.ts';

async function jobAt(t: Test, listener: RequestListener): Promise<Load> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await listensFor(t, server);
  return {
    kind: 'load',
    port: (server.address() as AddressInfo).port,
    parts: [
      {
        name: 'speech',
        share: 1,
        plan: { path: '/tts', body: '{}', headers: {}, payment: { by: 'nothing' } },
        expected: { status: 200, bytes: 5 },
      },
    ],
    pace: { concurrency: 4 },
    warmUpSeconds: 0,
    seconds: 0.1,
    targetPid: process.pid,
  };
}

test('requests are counted if answered within the time', async (t) => {
  let answered = 0;
  const job = await jobAt(t, (_request, response) => {
    answered++;
    response.end('audio');
  });
  const { parts, seconds, memory } = await runLoad(job);
  const speech = parts.speech as PartResult;
  assert.ok(speech.served > 0 && speech.served <= answered, `${speech.served} of ${answered}`);
  const [p50, p99] = [latencyOf([speech], 0.5), latencyOf([speech], 0.99, 'firstBytesMs')];
  assert.ok(seconds >= 0.09 && p50 > 0 && p99 > 0 && memory > 1_000_000);
});

test('a run ends after its maximum number of requests', async (t) => {
  const job = await jobAt(t, (_request, response) => response.end('audio'));
  const { servedInAll, seconds } = await runLoad({ ...job, most: 10, seconds: 60 });
  assert.equal(servedInAll.speech, 10);
  assert.ok(seconds < 10);
});

test('at a fixed rate, requests are sent without waiting for earlier responses', async (t) => {
  const waiting: ServerResponse[] = [];
  const job = await jobAt(t, (_request, response) => {
    waiting.push(response);
    if (waiting.length === 3) for (const each of waiting) each.end('audio');
  });
  const { parts } = await runLoad({ ...job, pace: { requestsPerSecond: 100, connections: 3 }, most: 3, seconds: 60 });
  assert.deepEqual([parts.speech?.served, parts.speech?.unsent], [3, 0]);
});

test('refusals are counted if the job allows them', async (t) => {
  const job = await jobAt(t, (_request, response) => response.writeHead(503).end());
  const { parts } = await runLoad({ ...job, mayRefuse: true });
  assert.equal(parts.speech?.served, 0);
  assert.ok((parts.speech?.refused ?? 0) > 0);
});

test('a response of another status or length ends the run', async (t) => {
  for (const spoil of [
    { status: 503, body: 'audio' },
    { status: 200, body: 'audi' },
  ]) {
    let answered = 0;
    const job = await jobAt(t, (_request, response) => {
      const isSpoilt = ++answered === 20;
      response.writeHead(isSpoilt ? spoil.status : 200).end(isSpoilt ? spoil.body : 'audio');
    });
    await assert.rejects(runLoad({ ...job, seconds: 60 }), /status \d+ with \d bytes instead of 200 with 5/);
  }
});

test('a connection closed by the target ends the run', async (t) => {
  const job = await jobAt(t, (request) => request.socket.destroy());
  await assert.rejects(runLoad(job));
});

const round = (requestsPerSecond: number, cpuMs: number) => ({
  ...{ requestsPerSecond, cpuMs, p50Ms: 1, p99Ms: 2, postgresCpuMs: 0.5, memory: 1024 ** 2 },
  eventLoopP99Ms: 3,
});

const lines = linesOf(selectRows(['card'], [1]), {
  portkey: [round(1000, 1), round(100, 1), round(1000, 1)],
  card: [round(2100, 0.3), round(210, 0.4), round(500, 0.36)],
});

const results = {
  ...{ isComplete: true, minutes: 1, rounds: 3, throughput: lines },
  machine: {
    ...{ startedAt: '2026-01-01T00:00:00', commit: 'abc', cpu: 'a <chip>', cores: 2, memoryGiB: 4, system: 'linux' },
    ...{ node: 'v20.20.0', postgres: '18', loadBefore: 0 },
  },
};

test('selected rows include their reference and appear once per number of processes', async () => {
  assert.deepEqual(
    selectRows(['card'], [1, 2]).map(({ name }) => name),
    ['portkey', 'card', 'card-2'],
  );
});

test('a ratio is the median over all rounds', async () => {
  const [, card] = lines;
  assert.deepEqual(card?.ratios, [{ against: 'Portkey 1.15.2', rate: 2.1, cpu: 0.36, askedRate: 2.2, askedCpu: 0.38 }]);
  assert.deepEqual(card?.requestsPerSecond, { median: 500, min: 210, max: 2100 });
});

test('the tables show which goals are reached and which are missed', async () => {
  const [measured, ratios] = tablesOf(results);
  assert.ok(measured && ratios);
  assert.deepEqual(ratios.cells.at(-1), [
    ...['card', 'Portkey 1.15.2', '2.10x', '2.2x', 'missed', '0.36x', '0.38x', 'reached'],
  ]);
  assert.match(plainTable(measured), /^card +500 \(210–2,100\)/m);
  assert.match(markdownTable(measured), /^\| card \| 500 \(210–2,100\) \|/m);
});

test('figures replace only the text between the marks', async () => {
  const page = 'before\n<!-- measured: begin -->\n\nold\n<!-- measured: end -->\nafter\n';
  const once = withFigures(page, 'new');
  assert.equal(once, 'before\n<!-- measured: begin -->\n\nnew\n<!-- measured: end -->\nafter\n');
  assert.equal(withFigures(once, 'new'), once);
  assert.throws(() => withFigures('no marks', 'new'));
});

test('spread and quantile compute medians and quantiles', async () => {
  assert.deepEqual(spread([3, 1, 2]), { median: 2, min: 1, max: 3 });
  assert.equal(spread([4, 1, 2, 3]).median, 2.5);
  const hundred = Float64Array.from({ length: 100 }, (_, index) => index + 1);
  assert.deepEqual([quantile(hundred, 0.5), quantile(hundred, 0.99), quantile(hundred, 1)], [50, 99, 100]);
  assert.equal(quantile(Float64Array.of(7), 0.5), 7);
});

const CHUNKED =
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab\r\nc\r\n1a\r\n01234567890123456789012345\r\n0\r\n\r\n';
const WITH_LENGTH = 'HTTP/1.1 402 Payment Required\r\nx: content-length: 9\r\nContent-Length: 7\r\n\r\nHTTP/1.';
const EMPTY = 'HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n';

/** Reads the bytes in pieces of this size. */
function read(text: string, size: number) {
  const answers: [number, number][] = [];
  let firstBytes = 0;
  const reader = new ResponseReader(
    (status, bytes) => answers.push([status, bytes]),
    () => firstBytes++,
  );
  const bytes = Buffer.from(text);
  const reused = Buffer.alloc(size);
  for (let at = 0; at < bytes.length; at += size) reader.push(reused.subarray(0, bytes.copy(reused, 0, at, at + size)));
  return { answers, firstBytes };
}

test('responses are counted however reads split them', async () => {
  for (let size = 1; size <= 200; size++) {
    assert.deepEqual(
      read(CHUNKED + WITH_LENGTH + EMPTY + CHUNKED, size),
      {
        answers: [
          [200, 31],
          [402, 7],
          [204, 0],
          [200, 31],
        ],
        firstBytes: 3,
      },
      `reads of ${size} bytes`,
    );
  }
});

test('an incomplete response is not counted', async () => {
  assert.deepEqual(read(CHUNKED.slice(0, -1), 100).answers, []);
  assert.deepEqual(read(WITH_LENGTH.slice(0, -1), 100).answers, []);
});

test('a response without a length is refused', async () => {
  assert.throws(() => read('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n', 100), /without a length/);
});
