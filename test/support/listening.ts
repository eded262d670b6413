import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';

/** The address of a server on this machine that closes with the test. */
export async function serve(t: Pick<Test, 'teardown'>, served: RequestListener | Server): Promise<string> {
  const server = typeof served === 'function' ? createServer(served) : served;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
