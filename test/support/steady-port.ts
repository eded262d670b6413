import { randomInt } from 'node:crypto';
import { isFree } from '../../src/sandbox/free-port.ts';

/** Below those that Linux gives to outgoing connections: one of them may take a port while its server is away. */
const [LOWEST_PORT, HIGHEST_PORT] = [12_000, 32_000];

const given = new Set<number>();

/** A loopback port that is free, for a server that goes away and comes back. No other call gives it. */
export async function steadyPort(): Promise<number> {
  let port: number;
  do port = randomInt(LOWEST_PORT, HIGHEST_PORT);
  while (given.has(port) || !(await isFree(port)));
  given.add(port);
  return port;
}
