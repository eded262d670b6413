import { createServer, type IncomingMessage, type RequestListener, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { listensFor } from '../../support/listening.ts';

/** A server of this machine that ends with the test. */
export async function serve(t: Test, listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await listensFor(t, server);
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Hands a request on to another server, with some headers changed, and its answer back. */
export function passOn(
  target: string,
  incoming: IncomingMessage,
  response: ServerResponse,
  changed: Readonly<Record<string, string>> = {},
): void {
  const { method, url, headers } = incoming;
  const outgoing = request(`${target}${url}`, { method, headers: { ...headers, ...changed } }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  outgoing.on('error', () => response.destroy());
  incoming.pipe(outgoing);
}

/** What a proxy makes of the X-Forwarded-For that it gets, and of the address that it gets it from. */
type Forwarding = (received: string | undefined, peer: string) => string;

/** A proxy in front of the service on this port. */
export const proxy = (t: Test, port: string | undefined, forwarded: Forwarding): Promise<string> =>
  serve(t, (incoming, response) => {
    const received = incoming.headers['x-forwarded-for'] as string | undefined;
    const address = forwarded(received, incoming.socket.remoteAddress ?? '');
    passOn(`http://127.0.0.1:${port}`, incoming, response, { 'x-forwarded-for': address });
  });

/** As a proxy is meant to. */
export const adding: Forwarding = (received, peer) => (received ? `${received}, ${peer}` : peer);
