import assert from 'node:assert/strict';
import { test } from 'tap';
import * as stub from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { fails, read, UNAVAILABLE } from './compatible-upstream.ts';
import { type Failover, startFailover } from './failover.ts';

const BROKEN = 3;
const AVAILABLE = 'speechgate_upstream_available{upstream="first"}';

const first = ({ upstreams }: Failover) => upstreams[0] as stub.StubUpstream;

async function hear(failover: Failover): Promise<string | undefined> {
  const speech = await failover.speak();
  await read(speech);
  return speech.upstream?.name;
}

/** Lets the first upstream fail until it is left alone. */
async function breakFirst(failover: Failover, mode = stub.openAiError(500)): Promise<void> {
  first(failover).mode = mode;
  for (let turn = 0; turn < BROKEN; turn++) assert.equal(await hear(failover), 'second');
  assert.equal(await failover.metric(AVAILABLE), 0);
}

test('an upstream that failed three times in a row is left alone, until it answers a probe and then speaks', async (t) => {
  const failover = await startFailover(t, {});
  await breakFirst(failover);
  for (let turn = 0; turn < 5; turn++) assert.equal(await hear(failover), 'second');
  assert.deepEqual(failover.asked(), [BROKEN, BROKEN + 5]);
  first(failover).mode = stub.mp3();
  await until(async () => (await failover.metric(AVAILABLE)) === 1);
  assert.deepEqual(failover.probes(0), ['GET /v1/models Bearer key of first']);
  assert.equal(await hear(failover), 'first');
});

test('a success in between begins the count anew', async (t) => {
  const failover = await startFailover(t, {});
  for (let turn = 0; turn < 3; turn++) {
    first(failover).mode = stub.openAiError(500);
    for (let failures = 1; failures < BROKEN; failures++) assert.equal(await hear(failover), 'second');
    first(failover).mode = stub.mp3();
    assert.equal(await hear(failover), 'first');
  }
});

test('one synthesis at a time finds out whether it speaks again; while it does not, the next probe waits longer', async (t) => {
  const failover = await startFailover(t, {});
  await breakFirst(failover);
  await until(async () => (await failover.metric(AVAILABLE)) === 1);
  const drip = new stub.Drip();
  first(failover).mode = drip.mode;
  const trial = failover.speak();
  await drip.opened;
  const others = await Promise.all(Array.from({ length: 10 }, () => hear(failover)));
  assert.deepEqual([...new Set(others)], ['second']);
  assert.equal(failover.asked()[0], BROKEN + 1);
  drip.reset();
  assert.equal((await trial).upstream?.name, 'second');
  assert.equal(await failover.metric(AVAILABLE), 0);
  const leftAloneAt = performance.now();
  await until(() => failover.probes(0).length === 2);
  const waitedMs = performance.now() - leftAloneAt;
  assert.ok(waitedMs > 1400, `the second probe came after ${waitedMs} ms`);
});

test('an upstream that answers probes with an error stays alone', async (t) => {
  const failover = await startFailover(t, {});
  await breakFirst(failover);
  const { url } = first(failover);
  await first(failover).close();
  const port = Number(new URL(url).port);
  const { createServer } = await import('node:http');
  let probes = 0;
  const server = createServer((_request, response) => {
    probes++;
    response.writeHead(503).end();
  }).listen(port, '127.0.0.1');
  t.teardown(() => server.close());
  await until(() => probes > 0);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(await failover.metric(AVAILABLE), 0);
});

test('an upstream that asks for time by Retry-After is probed after that', async (t) => {
  const failover = await startFailover(t, {});
  const startedAt = performance.now();
  await breakFirst(failover, stub.tooManyRequests('2'));
  await until(() => failover.probes(0).length === 1);
  assert.ok(performance.now() - startedAt > 1990);
});

test('where all are broken they are asked all the same, in order, and whoever speaks is whole again', async (t) => {
  const failover = await startFailover(t, {});
  const [, second] = failover.upstreams;
  assert.ok(second);
  for (const upstream of failover.upstreams) upstream.mode = stub.resetBeforeHeaders();
  for (let turn = 0; turn < 5; turn++) await fails(failover.speak(), UNAVAILABLE);
  assert.deepEqual(failover.asked(), [5, 5]);
  second.mode = stub.mp3();
  assert.equal(await hear(failover), 'second');
  assert.deepEqual(failover.asked(), [6, 6]);
  assert.equal(await hear(failover), 'second');
  assert.deepEqual(failover.asked(), [6, 7], 'it is asked first now');
});

test('a silence of the only upstream breaks it too, and it is asked all the same', async (t) => {
  const failover = await startFailover(t, { count: 1, timeoutMs: 300 });
  first(failover).mode = stub.hangBeforeHeaders();
  for (let turn = 0; turn < BROKEN; turn++) await fails(failover.speak(AbortSignal.timeout(300)), UNAVAILABLE);
  assert.equal(await failover.metric(AVAILABLE), 0);
  first(failover).mode = stub.mp3();
  assert.equal(await hear(failover), 'first');
  assert.equal(await failover.metric(AVAILABLE), 1);
});
