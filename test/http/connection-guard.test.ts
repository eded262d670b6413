import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { test } from 'tap';
import { Connection, MAX_UNSENT_BYTES } from '../../src/http/connection.ts';
import { CLIENT_STALL_MS } from '../../src/http/connection-guard.ts';
import { fixedBody, payloadOf } from '../../src/http/fixed-body.ts';
import { until } from '../support/until.ts';
import { LARGE, queued, REQUEST, startServer, untilKernelIsFull } from './held-server.ts';

test('a client that takes nothing for 30 s is cut', async (t) => {
  const { connections, unread } = await startServer(t, (_request, response) => response.end(LARGE));
  const { client, served } = await unread();
  await untilKernelIsFull(served);
  connections.sweep(0);
  connections.sweep(CLIENT_STALL_MS - 1);
  assert.equal(served.destroyed, false);
  connections.sweep(CLIENT_STALL_MS);
  assert.equal(served.destroyed, true);
  client.resume();
  await once(client, 'close');
});

test('what a client has not read of the connection that is cut has not arrived', async (t) => {
  const { connections, unread } = await startServer(t, (_request, response) => response.end(LARGE));
  const { served } = await unread();
  await untilKernelIsFull(served);
  const arrivals: boolean[] = [];
  Connection.of(served)?.onceArrived((hasArrived) => arrivals.push(hasArrived));
  for (const now of [0, CLIENT_STALL_MS]) connections.sweep(now);
  await until(() => arrivals.length > 0);
  assert.deepEqual(arrivals, [false]);
});

test('a slow client is not cut as long as it goes on reading, however large the answer is', async (t) => {
  const { connections, unread } = await startServer(t, (_request, response) => response.end(LARGE));
  const { client, served } = await unread();
  let read = 0;
  client.on('data', (chunk) => (read += chunk.length)).pause();
  let now = 0;
  while (read < LARGE.length) {
    await untilKernelIsFull(served);
    now += CLIENT_STALL_MS - 1;
    connections.sweep(now);
    assert.equal(served.destroyed, false);
    const before = read;
    client.resume();
    await until(() => read >= Math.min(before + 8 * 1024 * 1024, LARGE.length));
    client.pause();
  }
});

test('a client for which there is nothing is not cut, however long its request takes', async (t) => {
  const waiting: ServerResponse[] = [];
  const { connections, open } = await startServer(t, (_request, response) => waiting.push(response));
  const { client, served } = await open(REQUEST);
  await until(() => waiting.length === 1);
  for (let hour = 0; hour < 3; hour += 1) connections.sweep(hour * 3_600_000);
  assert.equal(served.destroyed, false);
  waiting[0]?.end('done');
  assert.match(String((await once(client.resume(), 'data'))[0]), /200 OK/);
});

test('while unread answers occupy too much, who took nothing is cut first, and of those who holds the most', async (t) => {
  const { connections, unread } = await startServer(
    t,
    (request, response) => response.end(Buffer.alloc(Number(request.url?.slice(1)) * 1024 * 1024)),
    80 * 1024 * 1024,
  );
  const megabytes = (count: number) => unread(`GET /${count} HTTP/1.1\r\nhost: a\r\n\r\n`);
  const [small, reading] = [await megabytes(16), await megabytes(48)];
  for (const { served } of [small, reading]) await untilKernelIsFull(served);
  connections.sweep(0);
  const large = await megabytes(40);
  await untilKernelIsFull(large.served);
  // From here on `reading` is known to take something, and `small` not to.
  const before = queued(reading.served);
  reading.client.once('data', () => reading.client.pause());
  reading.client.resume();
  await until(() => {
    if (queued(reading.served) === before) reading.client.resume();
    return queued(reading.served) < before;
  });
  reading.client.pause();
  connections.sweep(1000);
  assert.equal(small.served.destroyed, true, 'who took nothing goes first');
  assert.equal(reading.served.destroyed, true, 'then who holds the most');
  assert.equal(large.served.destroyed, false, 'and nobody when it is enough');
});

test('of one connection 16 requests are begun, each further one after an answer, and none is lost', async (t) => {
  const waiting: ServerResponse[] = [];
  const { open } = await startServer(t, (request, response) => {
    let size = 0;
    request.on('data', (chunk) => (size += chunk.length));
    request.on('end', () => response.setHeader('x-request', `${request.url} ${size}`) && waiting.push(response));
  });
  const sizes = Array.from({ length: 3000 }, (_, index) => (index % 3 === 0 ? (index * index) % 3001 : 0));
  const requests = sizes.map(
    (size, index) => `POST /${index} HTTP/1.1\r\nhost: a\r\ncontent-length: ${size}\r\n\r\n${'b'.repeat(size)}`,
  );
  const { client } = await open(requests.join(''));
  const chunks: Buffer[] = [];
  client.on('data', (chunk) => chunks.push(chunk)).resume();
  for (let answered = 0; answered < sizes.length; ) {
    const expected = Math.min(16, sizes.length - answered);
    await until(() => waiting.length >= expected);
    assert.equal(waiting.length, expected);
    answered += waiting.length;
    for (const response of waiting.splice(0)) response.end();
  }
  const answers = () =>
    [
      ...Buffer.concat(chunks)
        .toString()
        .matchAll(/^x-request: (.*)\r/gm),
    ].map(([, text]) => text);
  await until(() => answers().length === sizes.length);
  assert.deepEqual(
    answers(),
    sizes.map((size, index) => `/${index} ${size}`),
  );
});

test('a body that is fixed is serialized once, and any other each time', async () => {
  let count = 0;
  const serialize = (body: unknown) => {
    count += 1;
    return JSON.stringify(body).padEnd(20_000);
  };
  const fixed = fixedBody({ a: 1 });
  const payload = payloadOf(fixed, serialize);
  assert.ok(Buffer.isBuffer(payload));
  assert.equal(payloadOf(fixed, serialize), payload);
  assert.equal(count, 1);
  payloadOf({ a: 1 }, serialize);
  payloadOf({ a: 1 }, serialize);
  assert.equal(count, 3);
});

test('the next request of a connection is not begun while its answers wait for the client', async (t) => {
  let begun = 0;
  const { unread } = await startServer(t, (_request, response) => {
    begun += 1;
    response.end(LARGE);
  });
  const { client, served } = await unread();
  assert.ok(served.writableLength > MAX_UNSENT_BYTES);
  client.write(REQUEST);
  await until(() => served.bytesRead >= 2 * REQUEST.length);
  assert.equal(begun, 1);
  client.resume();
  await until(() => begun === 2);
});
