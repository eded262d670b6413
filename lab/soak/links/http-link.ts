import { once } from 'node:events';
import {
  Agent,
  createServer,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { Owner } from '../../../test/support/child.ts';

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** One request by the service, as a breaker sees it. */
export interface Exchange {
  /** Forwards the request. Resolves with the complete response, or rejects without one. */
  pass(): Promise<Answer>;
  /** Forwards the request and streams the response. Failures pass through. */
  relay(): Promise<void>;
  answer(answer: Answer): void;
  answerHalf(answer: Answer): void;
  reset(): void;
  /** Resolves when the service has disconnected or received the response. */
  readonly closed: Promise<unknown>;
}

/** Handles a request: responds, relays or resets. */
export type Breaker = (exchange: Exchange) => Promise<void> | void;

/** A proxy between the service and a part that it calls. */
export interface HttpLink {
  /** The service calls this origin instead of the part's. */
  readonly origin: string;
  /** Applies to new requests. Undefined relays all. */
  breaker: Breaker | undefined;
}

/** Hop-by-hop headers, which are not forwarded. */
const OF_HOPS = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length']);

export async function startHttpLink(owner: Owner, target: string): Promise<HttpLink> {
  const agent = new Agent({ keepAlive: true });
  const server = createServer(async (incoming, response) => {
    try {
      const body = await buffer(incoming);
      const exchange = exchangeOf(incoming, response, body, { target, agent });
      await (link.breaker ?? ((each) => each.relay()))(exchange);
    } catch {
      // The service disconnected or the part is unavailable. The service sees a reset.
      response.socket?.resetAndDestroy();
    }
  });
  // The part decides how long connections live. The proxy must not close them first.
  server.keepAliveTimeout = 0;
  server.requestTimeout = 0;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  owner.teardown(() => {
    server.close();
    server.closeAllConnections();
    agent.destroy();
  });
  const link: HttpLink = {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    breaker: undefined,
  };
  return link;
}

function exchangeOf(
  { method = '', url: path = '', headers }: IncomingMessage,
  response: ServerResponse,
  body: Buffer,
  { target, agent }: { target: string; agent: Agent },
): Exchange {
  const ask = (): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const length = body.length > 0 || method !== 'GET' ? { 'content-length': String(body.length) } : {};
      const passed = httpRequest(`${target}${path}`, {
        method,
        agent,
        headers: { ...withoutHops(headers), ...length },
      });
      passed.on('response', resolve).on('error', reject).end(body);
      // Forwards a disconnect.
      response.once('close', () => passed.destroy());
    });
  return {
    pass: async () => {
      const passed = await ask();
      return { status: passed.statusCode ?? 0, headers: withoutHops(passed.headers), body: await buffer(passed) };
    },
    relay: async () => {
      const passed = await ask();
      const { 'content-length': length } = passed.headers;
      response.writeHead(passed.statusCode ?? 0, {
        ...withoutHops(passed.headers),
        ...(length !== undefined && { 'content-length': length }),
      });
      response.flushHeaders();
      for await (const chunk of passed) if (!response.write(chunk)) await once(response, 'drain');
      response.end();
    },
    answer: ({ status, headers: told, body: bytes }) => {
      response.writeHead(status, { ...told, 'content-length': bytes.length }).end(bytes);
    },
    answerHalf: ({ status, headers: told, body: bytes }) => {
      response.writeHead(status, { ...told, 'content-length': bytes.length });
      const half = bytes.subarray(0, Math.floor(bytes.length / 2));
      response.write(half, () => setImmediate(() => response.socket?.resetAndDestroy()));
      if (half.length === 0) response.flushHeaders();
    },
    reset: () => response.socket?.resetAndDestroy(),
    closed: once(response, 'close').catch(() => undefined),
  };
}

function withoutHops(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_HOPS.has(name)));
}
