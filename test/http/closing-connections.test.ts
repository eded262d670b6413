import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { test } from 'tap';
import { STOP_IDLE_MS } from '../../src/http/connection-guard.ts';
import { until } from '../support/until.ts';
import { LARGE, REQUEST, startServer, untilKernelIsFull } from './held-server.ts';

test('a stop closes what waits for nothing after a second, what arrives after 3, and the rest after its answer', async (t) => {
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
  connections.sweep(begunAt + STOP_IDLE_MS - 1);
  assert.equal(nothing.served.destroyed, false);
  connections.sweep(begunAt + STOP_IDLE_MS + 1);
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

/** All that a client gets. */
function reading(client: Socket): () => string {
  let text = '';
  client.resume().on('data', (piece) => (text += piece));
  return () => text;
}

test('a request that is on its way at a stop is served, and closes its connection', async (t) => {
  const { connections, open } = await startServer(t, (_request, response) => response.end('done'));
  const { client, served } = await open(REQUEST);
  const read = reading(client);
  await until(() => read().endsWith('done'));
  assert.doesNotMatch(read(), /connection: close/i);
  const begunAt = performance.now();
  connections.stop(begunAt);
  connections.sweep(begunAt + STOP_IDLE_MS - 1);
  client.write(REQUEST);
  await until(() => served.destroyed && client.readableEnded);
  assert.match(read(), /done[\s\S]*200 OK[\s\S]*connection: close[\s\S]*done$/i);
  connections.close();
});

test('an answer that had begun at a stop closes nothing; the next one does, or a second of silence', async (t) => {
  const waiting: ServerResponse[] = [];
  const { connections, open } = await startServer(t, (_request, response) => {
    response.write('half');
    waiting.push(response);
  });
  const [one, other] = [await open(REQUEST), await open(REQUEST)];
  const [read, readOther] = [reading(one.client), reading(other.client)];
  await until(() => read().includes('half') && readOther().includes('half'));
  connections.leave();
  for (const response of waiting.splice(0)) response.end('done');
  await until(() => read().includes('done') && readOther().includes('done'));
  assert.doesNotMatch(read(), /connection: close/i);
  one.client.write(REQUEST);
  await until(() => waiting.length === 1);
  waiting[0]?.end();
  await until(() => one.served.destroyed && one.client.readableEnded);
  assert.match(read(), /done[\s\S]*200 OK[\s\S]*connection: close/i);
  assert.equal(other.served.destroyed, false, 'as long as it only leaves');
  const stoppedAt = performance.now();
  connections.stop(stoppedAt);
  connections.sweep(stoppedAt + STOP_IDLE_MS + 1);
  assert.equal(other.served.destroyed, true);
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

const SENDS_A_BODY = 'POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n';

test('an answer arrives whole that closes its connection while the body of its request is coming', async (t) => {
  const answer = 'a'.repeat(512 * 1024);
  const { open } = await startServer(t, (_request, response) => response.end(answer));
  const { client, served } = await open(`${SENDS_A_BODY}content-length: 9\r\n\r\nhalf`);
  await until(() => served.writableFinished);
  const { bytesRead } = served;
  client.write('of i');
  await until(() => served.destroyed || served.bytesRead > bytesRead);
  const read = reading(client);
  await once(client, 'close');
  assert.ok(read().endsWith(`\r\n\r\n${answer}`), `${read().length} characters`);
  await until(() => served.destroyed);
});

test('an answer that closes its connection arrives whole when a further request follows', async (t) => {
  const answer = 'a'.repeat(512 * 1024);
  let begun = 0;
  const { open } = await startServer(t, (_request, response) => {
    begun += 1;
    response.end(answer);
  });
  const { client, served } = await open(`GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
  await until(() => served.writableFinished);
  const { bytesRead } = served;
  client.write(REQUEST);
  await until(() => served.destroyed || served.bytesRead > bytesRead);
  const read = reading(client);
  await once(client, 'close');
  assert.ok(read().endsWith(`\r\n\r\n${answer}`), `${read().length} characters`);
  assert.equal(begun, 1);
});

test('who goes on sending after an answer that closes the connection is cut', async (t) => {
  const { open } = await startServer(t, (_request, response) => response.end('done'));
  const { client, served } = await open(`${SENDS_A_BODY}transfer-encoding: chunked\r\n\r\n`);
  const sending = setInterval(() => client.write('1\r\na\r\n'), 10);
  t.teardown(() => clearInterval(sending));
  await until(() => served.writableFinished);
  assert.equal(served.destroyed, false);
  await until(() => served.destroyed);
});
