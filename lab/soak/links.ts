import { once } from 'node:events';
import {
  Agent,
  createServer,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Owner } from '../../test/support/child.ts';
import { serve } from '../../test/support/listening.ts';
import type { Random } from './random.ts';

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** One request by the service, as a breaker sees it. */
interface Exchange {
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
type Breaker = (exchange: Exchange) => Promise<void> | void;

/** A proxy between the service and a part that it calls. */
export interface HttpLink {
  /** The service calls this origin instead of the part's. */
  readonly origin: string;
  /** Applies to new requests. Undefined relays all. */
  breaker: Breaker | undefined;
}

const LONGEST_DELAY_MS = 3_000;

const failure = (random: Random, ...statuses: number[]): Answer => ({
  status: random.pick(statuses),
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{"error":{"message":"a part has failed on purpose","type":"api_error"}}'),
});

/** By name. @param over resolves at the end of the fault; calls that hang then fail */
export const BREAKS: Readonly<Record<string, (random: Random, over: Promise<unknown>) => Breaker>> = {
  'late requests': (random) => {
    const delayMs = random.between(50, LONGEST_DELAY_MS);
    return async (exchange) => {
      await sleep(delayMs);
      await exchange.relay();
    };
  },
  'late answers': (random) => {
    const delayMs = random.between(50, LONGEST_DELAY_MS);
    return async (exchange) => {
      const answer = await exchange.pass();
      await sleep(delayMs);
      exchange.answer(answer);
    };
  },
  'lost requests': () => (exchange) => exchange.reset(),
  'lost answers': () => async (exchange) => {
    await exchange.pass();
    exchange.reset();
  },
  'half answers': () => async (exchange) => exchange.answerHalf(await exchange.pass()),
  'requests made twice': (random) => {
    const [isAtOnce, isFirstTold] = [random.chance(0.5), random.chance(0.5)];
    return async (exchange) => {
      const first = exchange.pass();
      if (!isAtOnce) await first;
      const answers = await Promise.all([first, exchange.pass()]);
      exchange.answer(answers[isFirstTold ? 0 : 1]);
    };
  },
  failures: (random) => {
    const answer = failure(random, 500, 502, 503, 504, 507, 429);
    return (exchange) => exchange.answer(answer);
  },
  'failures of what was done': (random) => {
    const answer = failure(random, 500, 502, 503, 504);
    return async (exchange) => {
      await exchange.pass();
      exchange.answer(answer);
    };
  },
  'requests that hang': (_random, over) => async (exchange) => {
    await Promise.race([over, exchange.closed]);
    exchange.reset();
  },
  'answers that hang': (_random, over) => async (exchange) => {
    await exchange.pass();
    await Promise.race([over, exchange.closed]);
    exchange.reset();
  },
};

/** Hop-by-hop headers, which are not forwarded. */
const OF_HOPS = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length']);

export async function startHttpLink(owner: Owner, target: string): Promise<HttpLink> {
  const agent = new Agent({ keepAlive: true });
  const server = createServer(async (incoming, response) => {
    try {
      const exchange = exchangeOf(incoming, response, await buffer(incoming), { target, agent });
      await (link.breaker ?? ((each) => each.relay()))(exchange);
    } catch {
      // The service disconnected or the part is unavailable. The service sees a reset.
      response.socket?.resetAndDestroy();
    }
  });
  // The part decides how long connections live. The proxy must not close them first.
  server.keepAliveTimeout = 0;
  server.requestTimeout = 0;
  owner.teardown(() => agent.destroy());
  const link: HttpLink = { origin: await serve(owner, server), breaker: undefined };
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
        ...{ method, agent },
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
