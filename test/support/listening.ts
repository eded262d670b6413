import { once } from 'node:events';
import type { Server } from 'node:http';
import type { Test } from 'tap';

/** Resolves once the server listens; it closes with the test. */
export async function listensFor(t: Test, server: Server): Promise<void> {
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
}
