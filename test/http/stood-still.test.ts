import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { test } from 'tap';
import { ARRIVAL_MS, Connection } from '../../src/http/connection.ts';
import { until } from '../support/until.ts';
import { REQUEST, startServer } from './held-server.ts';

/** Some sweeps are missed. */
const STILL_MS = 4_000;

/** As SIGSTOP does it to the process, but that the test goes on with it. */
const standStill = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, STILL_MS);

const breakMeanwhile = (client: Socket) => {
  client.resetAndDestroy();
  standStill();
};
const breakAfterwards = (client: Socket) => {
  standStill();
  setTimeout(() => client.resetAndDestroy(), 100);
};

for (const [when, leftMs, cut] of [
  ['breaks while the process stands still', 500, breakMeanwhile],
  ['breaks when the process goes on', 2_000, breakAfterwards],
] as const) {
  test(`the connection of an answer that ${when} was not silent all that time`, async (t) => {
    const responses: ServerResponse[] = [];
    const { connections, open } = await startServer(t, (_request, response) => responses.push(response.end('done')));
    connections.start();
    t.teardown(() => connections.close());
    const { client, served } = await open(REQUEST);
    await until(() => responses[0]?.writableFinished === true);
    const arrivals: boolean[] = [];
    const followedSince = performance.now() - ARRIVAL_MS + leftMs;
    Connection.of(served)?.onceArrived((hasArrived) => arrivals.push(hasArrived), followedSince);
    cut(client);
    await until(() => arrivals.length > 0);
    assert.deepEqual(arrivals, [false]);
  });
}

test('a connection that broke while the process stood still is not taken for one that was idle for too long', async (t) => {
  const responses: ServerResponse[] = [];
  const { open } = await startServer(t, (_request, response) => responses.push(response.end('done')));
  const { client, served } = await open(REQUEST);
  await until(() => responses[0]?.writableFinished === true);
  const arrivals: boolean[] = [];
  Connection.of(served)?.onceArrived((hasArrived) => arrivals.push(hasArrived));
  client.resetAndDestroy();
  // Timers come first when the process wakes up.
  served.emit('timeout');
  await until(() => arrivals.length > 0);
  assert.deepEqual(arrivals, [false]);
});

for (const [what, bytes] of [
  ['nothing', ''],
  ['an empty line', '\r\n'],
] as const) {
  test(`a connection that is idle for too long is closed, with ${what} after its request`, async (t) => {
    const { open, server } = await startServer(t, (_request, response) => response.end('done'));
    server.keepAliveTimeout = 100;
    const { client } = await open(REQUEST);
    await once(client, 'readable');
    client.write(bytes);
    client.resume();
    await once(client, 'close');
    assert.ok(client.bytesRead > 0);
  });
}
