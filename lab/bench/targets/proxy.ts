import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { PROJECT, type Running, startProgram } from './program.ts';
import type { Target } from './start.ts';

export interface Proxy {
  readonly port: number;
  readonly program: Running;
}

/** Starts HAProxy in front of one gateway, with ops/haproxy.cfg. */
export async function startProxy({ port: gateway, adminPort }: Target, folder: string): Promise<Proxy> {
  const port = await freePort();
  const example = await readFile(join(PROJECT, 'ops/haproxy.cfg'), 'utf8');
  const configuration = join(folder, 'haproxy.cfg');
  const settings = example
    // HAProxy would not start if it cannot open as many connections to the gateway as to clients. It needs far fewer.
    .replace('global\n', 'global\n  no strict-limits\n  maxconn 13000\n')
    .replace('/run/haproxy.sock', join(folder, 'haproxy.sock'))
    .replace('bind :8080', `bind 127.0.0.1:${port}`)
    .replaceAll(/^ *server two .*\n/gm, '')
    .replaceAll('127.0.0.1:8081 port 9081', `127.0.0.1:${gateway} port ${adminPort}`);
  await writeFile(configuration, settings);
  const program = await startProgram({ name: 'haproxy', command: 'haproxy', args: ['-f', configuration], folder });
  await program.listens(port);
  return { port, program };
}
