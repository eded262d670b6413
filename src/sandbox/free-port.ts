import { createServer } from 'node:net';

/** Whether a program may listen on this loopback port now. */
export async function isFree(port: number): Promise<boolean> {
  return (await listenBriefly(port)) !== undefined;
}

/** A loopback port that nobody listens on: the preferred one when it is free. */
export async function freePort(preferred: number | undefined): Promise<number> {
  const port = (preferred ? await listenBriefly(preferred) : undefined) ?? (await listenBriefly(0));
  if (port === undefined) throw new Error('No free port on 127.0.0.1.');
  return port;
}

function listenBriefly(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen(port, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' ? address?.port : undefined));
    });
  });
}
