import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { ONE_MODEL } from './client.ts';
import { listensFor } from './listening.ts';

/** Starts a service that has one model and answers nothing else. Returns its address. */
export async function startCatalogServer(t: Test): Promise<string> {
  const body = JSON.stringify(ONE_MODEL);
  const server = createServer((request, response) => {
    const status = request.url === '/tts/models' ? 200 : 404;
    response.writeHead(status, { 'content-type': 'application/json' }).end(status === 200 ? body : '{}');
  }).listen(0, '127.0.0.1');
  await listensFor(t, server);
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
