import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { Test } from 'tap';
import { CLIENT_STALL_MS, ConnectionGuard, STOP_IDLE_MS } from '../../src/http/connection-guard.ts';
import { RunningWork } from '../../src/lib/running-work.ts';
import { createLogger } from '../../src/observability/logger.ts';
import { until } from '../support/until.ts';

/** More than the kernel takes for a client that does not read. */
export const LARGE = Buffer.alloc(32 * 1024 * 1024);
export const REQUEST = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';

/** Both ends of a connection; the client does not read until it is resumed. */
interface Ends {
  readonly client: Socket;
  readonly served: Socket;
}

/** A server whose sweeps are called by the test, with times of its own. */
export async function startServer(t: Test, onRequest: RequestListener, maxHeldBytes?: number) {
  const connections = new ConnectionGuard({
    logger: createLogger('silent'),
    maxConnections: 100,
    stallMs: CLIENT_STALL_MS,
    work: new RunningWork(),
    longestOperationMs: 3_600_000,
    stopIdleMs: STOP_IDLE_MS,
    ...(maxHeldBytes !== undefined && { maxHeldBytes }),
  });
  const sockets: Socket[] = [];
  const server = createServer(onRequest);
  // What comes after the last answer may be anything.
  connections.watch(server, (error, socket) => void assert.ok(!socket.writable, error));
  server.on('connection', (socket: Socket) => sockets.push(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.closeAllConnections());
  t.teardown(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return {
    connections,
    server,
    open,
    /** Connects, asks, and does not read; with an answer that is stuck. */
    async unread(request = REQUEST): Promise<Ends> {
      const ends = await open(request);
      await until(() => ends.served.writableLength > 0);
      return ends;
    },
  };

  /** Connects and sends. */
  async function open(bytes: string): Promise<Ends> {
    const client = connect(port, '127.0.0.1').pause();
    client.on('error', () => {});
    t.teardown(() => client.destroy());
    await once(client, 'connect');
    if (bytes) client.write(bytes);
    const isServed = ({ remotePort }: Socket) => remotePort === client.localPort;
    await until(() => sockets.some(isServed));
    const served = sockets.find(isServed) as Socket;
    await until(() => served.bytesRead > 0 || bytes === '');
    return { client, served };
  }
}

/** Waits until the kernel takes no more for this client. */
export async function untilKernelIsFull(socket: Socket): Promise<void> {
  let last = -1;
  await until(() => {
    const isSame = queued(socket) === last;
    last = queued(socket);
    return isSame;
  });
}

/** Bytes that the kernel has not taken. */
export const queued = (socket: Socket): number =>
  (socket as unknown as { _handle: { writeQueueSize: number } })._handle.writeQueueSize;
