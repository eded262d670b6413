import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { test } from 'tap';
import { until } from '../support/until.ts';
import { LARGE, REQUEST, startServer, untilKernelIsFull } from './held-server.ts';

test('a stop closes at once what waits for nothing, soon what arrives, and the rest after its answer', async (t) => {
  const waiting: ServerResponse[] = [];
  const { connections, open } = await startServer(t, (request, response) => {
    request.resume().on('end', () => waiting.push(response));
  });
  const nothing = await open('');
  const halfHeader = await open(REQUEST.slice(0, -5));
  const halfBody = await open('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf');
  const running = await open(REQUEST);
  await until(() => waiting.length === 1);
  const begunAt = performance.now();
  connections.stop(begunAt);
  assert.equal(nothing.served.destroyed, true);
  connections.sweep(begunAt + 2_999);
  assert.equal(halfHeader.served.destroyed, false);
  assert.equal(halfBody.served.destroyed, false);
  connections.sweep(begunAt + 3_000);
  assert.equal(halfHeader.served.destroyed, true);
  assert.equal(halfBody.served.destroyed, true);
  assert.equal(running.served.destroyed, false);
  waiting[0]?.end('done');
  const [answer] = await once(running.client.resume(), 'data');
  assert.match(String(answer), /connection: close/i);
  await until(() => running.served.destroyed);
  connections.close();
});

test('a stop cuts who reads nothing of its answer for 3 s', async (t) => {
  const { connections, unread } = await startServer(t, (_request, response) => response.end(LARGE));
  const { served } = await unread();
  await untilKernelIsFull(served);
  const begunAt = performance.now();
  connections.stop(begunAt);
  connections.sweep(begunAt);
  connections.sweep(begunAt + 2_999);
  assert.equal(served.destroyed, false);
  // The operating system may find room for a little more at any moment, from which the time counts anew.
  let now = begunAt;
  await until(() => {
    now += 3_000;
    connections.sweep(now);
    return served.destroyed;
  });
  connections.close();
});
