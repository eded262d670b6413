import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo, Server, Socket } from 'node:net';
import type { Owner } from './child.ts';

/** The address of a server on this machine, of HTTP or else, that ends with the test, whatever connections there are. */
export async function serve(t: Owner, served: RequestListener | Server): Promise<string> {
  const server: Server = typeof served === 'function' ? createServer(served) : served;
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
