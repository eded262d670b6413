import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import test, { type TestContext } from 'node:test';
import { MAX_UNSENT_BYTES } from '../../src/http/connection.ts';
import { CLIENT_STALL_MS, Connections } from '../../src/http/connections.ts';
import { fixedBody, payloadOf } from '../../src/http/fixed-body.ts';
import { createLogger } from '../../src/logger.ts';
import { RunningWork } from '../../src/running-work.ts';
import { startGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

/** More than the kernel takes for a client that does not read. */
const LARGE = Buffer.alloc(32 * 1024 * 1024);
const REQUEST = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';

/** A server whose sweeps are called by the test, with times of its own. */
async function startServer(t: TestContext, onRequest: RequestListener, maxHeldBytes?: number) {
  const connections = new Connections({
    logger: createLogger('silent'),
    maxConnections: 100,
    stallMs: CLIENT_STALL_MS,
    work: new RunningWork(),
    longestOperationMs: 0,
    ...(maxHeldBytes !== undefined && { maxHeldBytes }),
  });
  const sockets: Socket[] = [];
  const server = createServer(onRequest);
  connections.watch(server, (error) => assert.fail(error));
  server.on('connection', (socket: Socket) => sockets.push(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.closeAllConnections());
  t.after(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return {
    connections,
    /** Connects, asks, and does not read; with the server's end of the connection, once an answer is stuck in it. */
    async unread(request = REQUEST): Promise<{ client: Socket; served: Socket }> {
      const client = connect(port, '127.0.0.1').pause();
      client.on('error', () => {});
      t.after(() => client.destroy());
      await once(client, 'connect');
      client.write(request);
      const isServed = ({ remotePort }: Socket) => remotePort === client.localPort;
      await until(() => (sockets.find(isServed)?.writableLength ?? 0) > 0);
      const served = sockets.find(isServed) as Socket;
      return { client, served };
    },
  };
}

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

test('a slow client is not cut as long as it goes on reading, however large the answer is', async (t) => {
  const { connections, unread } = await startServer(t, (_request, response) => response.end(LARGE));
  const { client, served } = await unread();
  let read = 0;
  client.on('data', (chunk) => (read += chunk.length)).pause();
  let now = 0;
  while (read < LARGE.length) {
    await untilKernelIsFull(served);
    connections.sweep((now += CLIENT_STALL_MS - 1));
    assert.equal(served.destroyed, false);
    const before = read;
    client.resume();
    await until(() => read >= Math.min(before + 8 * 1024 * 1024, LARGE.length));
    client.pause();
  }
});

test('a client for which there is nothing is not cut, however long its request takes', async (t) => {
  let answer = () => {};
  const { connections, unread } = await startServer(t, (_request, response) => {
    response.writeProcessing();
    answer = () => void response.end('done');
    response.socket?.cork();
  });
  const { client, served } = await unread();
  served.uncork();
  await until(() => served.writableLength === 0);
  for (let hour = 0; hour < 3; hour += 1) connections.sweep(hour * 3_600_000);
  assert.equal(served.destroyed, false);
  answer();
  client.resume();
  const [bytes] = await once(client, 'data');
  assert.ok(bytes.length > 0);
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

test('a body that is fixed is serialized once, and any other each time', () => {
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

test('GET /openapi.json, /docs and / answer the same each time, and HEAD with their length', async (t) => {
  const { call } = await startGateway(t);
  for (const path of ['/openapi.json', '/docs', '/']) {
    const [first, second] = [await call(path), await call(path)];
    assert.equal(first.status, 200);
    assert.deepEqual(second.bytes, first.bytes);
    const head = await call(path, { method: 'HEAD' });
    assert.equal(head.headers.get('content-length'), String(first.bytes.length));
  }
});

test('MAX_CONNECTIONS: what is over it is closed at once, and a place that is left is free again', async (t) => {
  const { url } = await startGateway(t, { MAX_CONNECTIONS: '2' });
  const open = () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('error', () => {});
    t.after(() => socket.destroy());
    return socket;
  };
  const answers = async (socket: Socket): Promise<boolean> => {
    socket.write(REQUEST);
    return Promise.race([once(socket, 'data').then(() => true), once(socket, 'close').then(() => false)]);
  };
  const [first, second, third] = [open(), open(), open()];
  assert.equal(await answers(first), true);
  assert.equal(await answers(second), true);
  assert.equal(await answers(third), false);
  first.destroy();
  await until(() => answers(open()));
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

/** Waits until the kernel takes no more for this client. */
async function untilKernelIsFull(socket: Socket): Promise<void> {
  let last = -1;
  await until(() => {
    const isSame = queued(socket) === last;
    last = queued(socket);
    return isSame;
  });
}

/** Bytes that the kernel has not taken. */
const queued = (socket: Socket): number =>
  (socket as unknown as { _handle: { writeQueueSize: number } })._handle.writeQueueSize;
