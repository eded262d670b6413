import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/** Systems give higher ports to outgoing connections, which could take one before it is used or while its server is away. */
const FIRST_PORT = 20_000;
const END_PORT = 32_768;
const MOST_TRIES = 100;

const given = new Set<number>();

/** @returns the preferred loopback port if it is free, or else another that no call of this process got before */
export async function freePort(preferred?: number): Promise<number> {
  if (preferred && (await isFree(preferred))) {
    given.add(preferred);
    return preferred;
  }
  for (let tries = 0; tries < MOST_TRIES; tries++) {
    const port = randomInt(FIRST_PORT, END_PORT);
    if (given.has(port) || !(await isFree(port))) continue;
    given.add(port);
    return port;
  }
  throw new Error('No port on 127.0.0.1 is free. Stop a program that uses ports, then start again.');
}

export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
